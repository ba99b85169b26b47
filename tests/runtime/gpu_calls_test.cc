// What ranks take where NCCL cannot be had, and what they say of it: slices of one GPU, and ranks without NCCL. The
// rule itself: gpu_choice_test.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/gpu_named_fixture.h"
#include "runtime/gpus_with_nccl.h"

namespace gyre {
namespace {

using support::GpuRank;
using support::HostSizes;
using support::HostValues;
using support::IsOk;
using support::Portion;
using support::RunByNccl;
using support::Sums;
using support::Values;
using testing::HasSubstr;

constexpr int64_t kCount = 70'000;  // more than what a hierarchy leaves to the host

void ExpectSum(GpuRank& rank, Communicator& all) {
  auto tensor = rank.Tensor(DType::kF32, kCount, rank.stream);
  HostValues values(rank);
  values.Put(tensor.view, Values(rank.rank.rank, 1, 1, kCount));
  ASSERT_THAT(all.AllReduce(tensor.view), IsOk());
  values.Expect(tensor.view, Sums(rank.rank.size, 1, 1, kCount));
  values.Compare({rank.stream});
}

// Of the world, and of a communicator of the same ranks.
void ExpectSums(GpuRank& rank) {
  std::vector<int> ranks(static_cast<size_t>(rank.rank.size));
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  auto again = rank.world().Split(ranks);
  ASSERT_THAT(again, IsOk());
  ExpectSum(rank, rank.world());
  ExpectSum(rank, **again);
}

// From now on this rank has none. Its GPU is open.
void TakeNcclAway(const GpuRank& rank) {
  internal::Gpus::Of(rank.world()).OpenBy(nullptr);
}

// What ranks log by NCCL where they can.
std::string LogOf(const HostSizes& hosts, const std::function<void(GpuRank&)>& body, Portion portion = Portion::kGpu) {
  testing::internal::CaptureStderr();
  RunByNccl(hosts, 1, body, portion);
  return testing::internal::GetCapturedStderr();
}

// How often the log says that tensors go by the host.
int Warnings(const std::string& log) {
  constexpr std::string_view kText = "collectives of tensors on GPUs go through the host's memory";
  int count = 0;
  for (size_t at = log.find(kText); at != std::string::npos; at = log.find(kText, at + 1)) ++count;
  return count;
}

// Memory of which no other process opens. NCCL is not asked: it would end the communicator.
TEST(GpuCallsTest, SlicesOfOneGpuGoStaged) {
  for (const HostSizes& hosts : {HostSizes{2}, HostSizes{2, 2}}) {
    const std::string log = LogOf(
        hosts,
        [](GpuRank& rank) {
          rank.gpu->sharing().Refuse(absl::UnavailableError("another slice's memory"));
          ExpectSums(rank);
          EXPECT_EQ(rank.nccl->made, 0);
        },
        Portion::kSlice);
    EXPECT_EQ(Warnings(log), 1) << log;
    EXPECT_THAT(log, HasSubstr("warning rank 0: collectives of tensors on GPUs go through the host's memory: rank 0 "
                               "cannot share its GPU's memory: another slice's memory\n"));
  }
}

// Hosts that have GPUs at the same place.
TEST(GpuCallsTest, SlicesOnDifferentHostsGoByNccl) {
  const std::string log = LogOf(
      {1, 1},
      [](GpuRank& rank) {
        ExpectSum(rank, rank.world());
        EXPECT_EQ(rank.nccl->made, 2);
      },
      Portion::kSlice);
  EXPECT_EQ(Warnings(log), 0) << log;
}

TEST(GpuCallsTest, OneRankSaysOnceWhoHasNoNccl) {
  for (const HostSizes& hosts : {HostSizes{3}, HostSizes{1, 1, 1}}) {
    const std::string log = LogOf(hosts, [](GpuRank& rank) {
      if (rank.rank.rank == 1) TakeNcclAway(rank);
      ExpectSums(rank);
      EXPECT_EQ(rank.nccl->made, 0);
    });
    EXPECT_EQ(Warnings(log), 1) << log;
    EXPECT_THAT(log, HasSubstr("warning rank 0: collectives of tensors on GPUs go through the host's memory: "
                               "rank 1 has no NCCL\n"));
  }
}

TEST(GpuCallsTest, RanksOfPartsAreNamedByBothNumbers) {
  const std::string log = LogOf({3}, [](GpuRank& rank) {
    if (rank.rank.rank == 2) TakeNcclAway(rank);
    auto part = rank.world().Split(rank.rank.rank != 0 ? std::vector<int>{2, 1} : std::vector<int>());
    ASSERT_THAT(part, IsOk());
    if (*part != nullptr) {
      auto tensor = rank.Tensor(DType::kI32, 1000, rank.stream);
      HostValues values(rank);
      values.Put(tensor.view, std::vector<int32_t>(1000, rank.rank.rank));
      ASSERT_THAT((*part)->AllReduce(tensor.view), IsOk());
      values.Expect(tensor.view, std::vector<int32_t>(1000, 3));
      values.Compare({rank.stream});
    }
    rank.Meet();
  });
  EXPECT_EQ(Warnings(log), 1) << log;
  EXPECT_THAT(log, HasSubstr("warning rank 2: "));
  EXPECT_THAT(log, HasSubstr(": rank 0 (2 in the job) has no NCCL\n"));
}

// By NCCL on the host of two ranks; the third is alone on its own.
TEST(GpuCallsTest, SaysWhatOfAHierarchyGoesByTheHost) {
  const std::string log = LogOf({2, 1}, [](GpuRank& rank) {
    if (rank.rank.rank == 2) TakeNcclAway(rank);
    ExpectSum(rank, rank.world());
    rank.Meet();
    EXPECT_EQ(rank.nccl->made, 2);
  });
  EXPECT_EQ(Warnings(log), 1) << log;
  EXPECT_THAT(log, HasSubstr("warning rank 0: collectives of tensors on GPUs go through the host's memory between "
                             "hosts: rank 2 has no NCCL\n"));
}

}  // namespace
}  // namespace gyre
