// Collectives between hosts on a simulated network.
#include <cstdlib>

#include "collectives/hierarchical/sim_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using internal::Call;
using internal::CallKind;
using internal::HierarchicalOperation;

TEST(Simulated, RandomCallsGiveTheDefinitionsResult) {
  for (uint64_t seed = 1; seed <= 300; ++seed) EXPECT_EQ(RunRandomCall(seed, false, 16, nullptr), "");
}

TEST(Simulated, ManyRanks) {
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(RunRandomCall(seed, false, 64, nullptr), "");
}

TEST(Simulated, WithFaultsEveryCallEndsWellOrInAStatus) {
  for (uint64_t seed = 1; seed <= 300; ++seed) EXPECT_EQ(RunRandomCall(seed, true, 12, nullptr), "");
}

TEST(Simulated, TheSameSeedReplaysByteForByte) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::string first, other;
    EXPECT_EQ(RunTwice(seed, true, 8), "");
    RunRandomCall(seed, true, 8, &first);
    RunRandomCall(seed + 1000, true, 8, &other);
    EXPECT_TRUE(first != other) << seed;
  }
}

std::vector<std::shared_ptr<HierarchicalOperation>> AllReduces(SimWorld& world, std::vector<std::vector<float>>& data) {
  std::vector<std::shared_ptr<HierarchicalOperation>> operations;
  for (int r = 0; r < world.size(); ++r) {
    auto& own = data[static_cast<size_t>(r)];
    operations.push_back(world.Make(r, {.kind = CallKind::kAllReduce, .in = own, .out = own}));
  }
  return operations;
}

// 2 (h - 1) / h S and the headers leave every host.
TEST(Simulated, AllReduceSendsNoMoreThanItMust) {
  for (const int hosts : {2, 3, 4, 8}) {
    SimWorld world({.ranks = hosts});
    const int64_t count = 3 * 8 * 7 * (64 << 10) / 4;
    std::vector<std::vector<float>> data(static_cast<size_t>(hosts), std::vector<float>(static_cast<size_t>(count), 1));
    const auto operations = AllReduces(world, data);
    ASSERT_TRUE(world.Run(operations, std::chrono::seconds(100)));
    for (int r = 0; r < hosts; ++r) {
      EXPECT_THAT(operations[static_cast<size_t>(r)]->status(), support::IsOk());
      const double least = 2.0 * (hosts - 1) / hosts * static_cast<double>(count) * 4;
      EXPECT_GE(static_cast<double>(world.network().bytes_sent(r)), least);
      EXPECT_LE(static_cast<double>(world.network().bytes_sent(r)), least * 1.001) << hosts;
    }
  }
}

// With links of 1 Gbit/s and 50 us, the time should be the bytes' own.
TEST(Simulated, AllReduceKeepsItsLinksBusy) {
  SimWorld world({.ranks = 4});
  std::vector<std::vector<float>> data(4, std::vector<float>(4 << 20, 1));
  const auto operations = AllReduces(world, data);
  const TimePoint start = world.network().now();
  ASSERT_TRUE(world.Run(operations, std::chrono::seconds(100)));
  const double seconds = std::chrono::duration<double>(world.network().now() - start).count();
  const double least = 1.5 * 16 * (1 << 20) / 125e6;
  EXPECT_LT(seconds, least * 1.05);
  EXPECT_GT(seconds, least);
}

TEST(Simulated, DifferentCallsNameBothSides) {
  SimWorld world({.ranks = 3});
  std::vector<float> a(10), b(10), c(11);
  const auto reduce = [&](int rank, std::vector<float>& data) {
    return world.Make(rank, {.kind = CallKind::kAllReduce, .in = data, .out = data});
  };
  const std::vector operations = {reduce(0, a), reduce(1, b), reduce(2, c)};
  ASSERT_TRUE(world.Run(operations, std::chrono::seconds(100)));
  for (const auto& operation : operations) {
    EXPECT_THAT(operation->status(), support::MatchesStatus(absl::StatusCode::kInvalidArgument, "10 elements"));
    EXPECT_THAT(operation->status(),
                support::MatchesStatus(absl::StatusCode::kInvalidArgument, "rank 2 called allreduce(f32, 11"));
  }
}

TEST(Simulated, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  SimWorld world({.ranks = 4});
  std::vector<std::vector<float>> data(4, std::vector<float>(100));
  auto operations = AllReduces(world, data);
  operations[2] = nullptr;
  ASSERT_TRUE(world.Run(operations, std::chrono::seconds(100)));
  // Whoever looks first sees the deadline, the others hear of it.
  EXPECT_THAT(operations[0]->status(), support::MatchesStatus(absl::StatusCode::kDeadlineExceeded, "after 10 s"));
  for (const int r : {0, 1, 3}) {
    EXPECT_THAT(operations[static_cast<size_t>(r)]->status().message(), testing::HasSubstr("rank 2 did not come"));
  }
}

}  // namespace
}  // namespace gyre
