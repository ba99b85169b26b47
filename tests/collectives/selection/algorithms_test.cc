#include "collectives/selection/algorithms.h"

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

TEST(ForcedAlgorithms, AreReadAndWritten) {
  const auto forced = ParseForcedAlgorithms("alltoall=bruck,allreduce=halving_doubling");
  ASSERT_THAT(forced, IsOk());
  EXPECT_EQ(forced->Of(Collective::kAllReduce), Algorithm::kHalvingDoubling);
  EXPECT_EQ(forced->Of(Collective::kAllToAll), Algorithm::kBruck);
  EXPECT_EQ(forced->Of(Collective::kBroadcast), std::nullopt);
  EXPECT_FALSE(forced->nominal);
  EXPECT_EQ(forced->ToString(), "allreduce=halving_doubling,alltoall=bruck");  // in one order, to be compared
}

TEST(ForcedAlgorithms, MayBeNoneOrNominal) {
  const auto none = ParseForcedAlgorithms("");
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(none->ToString(), "");
  const auto nominal = ParseForcedAlgorithms("reduce=chain,nominal");
  ASSERT_THAT(nominal, IsOk());
  EXPECT_TRUE(nominal->nominal);
  EXPECT_EQ(nominal->ToString(), "nominal,reduce=chain");
}

TEST(ForcedAlgorithms, NameWhatThereIsWhereSomethingIsNotKnown) {
  EXPECT_THAT(ParseForcedAlgorithms("allreduce=rinng"),
              MatchesStatus(StatusCode::kInvalidArgument,
                            "recursive_doubling, ring, circulant, halving_doubling, double_tree"));
  EXPECT_THAT(ParseForcedAlgorithms("allgather=chain"), MatchesStatus(StatusCode::kInvalidArgument, "ring, circulant"));
  EXPECT_THAT(ParseForcedAlgorithms("sum=ring"),
              MatchesStatus(StatusCode::kInvalidArgument, "allreduce, reduce_scatter, allgather"));
  EXPECT_THAT(ParseForcedAlgorithms("ring"), MatchesStatus(StatusCode::kInvalidArgument, "OPERATION=ALGORITHM"));
  EXPECT_THAT(ParseForcedAlgorithms("allreduce=ring,"), MatchesStatus(StatusCode::kInvalidArgument, "GYRE_ALGORITHMS"));
  EXPECT_THAT(ParseForcedAlgorithms("allreduce=ring,allreduce=ring"),
              MatchesStatus(StatusCode::kInvalidArgument, "twice"));
}

// What Predict takes for granted.
TEST(Algorithms, HaveAsManyBlocksAsTheirSchedules) {
  for (int number = 0; number < kCollectiveCount; ++number) {
    const auto operation = static_cast<Collective>(number);
    const int times = operation == Collective::kAllToAll ? 2 : 1;  // what goes out and what comes in
    for (const Algorithm algorithm : AlgorithmsOf(operation)) {
      for (const int size : {2, 3, 4, 7, 8, 13}) {
        EXPECT_EQ(MakeSchedule(operation, algorithm, 1, size).blocks, times * BlocksOf(algorithm, size));
      }
    }
  }
}

}  // namespace
}  // namespace gyre::internal
