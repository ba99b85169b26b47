// Tensors on GPUs that the ranks of each of several hosts share: hierarchically, as a program sees it. What the backend
// does, gpu_backends_test says; what operations compute, gpu_conformance_test.
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/gpu_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::ExactValue;
using support::FillExact;
using support::GpuRank;
using support::HostSizes;
using support::IsOk;
using support::MatchesStatus;
using support::Owner;
using support::TimeoutOf;

void RunOnSharedGpus(const HostSizes& hosts, unsigned seed, const std::function<void(GpuRank&)>& body) {
  support::RunOnGpus(hosts, seed, body, Owner::kHost);
}

std::vector<float> InputOverHosts(int rank, int64_t count, uint64_t number) {
  std::vector<float> values(static_cast<size_t>(count));
  FillExact(values, number, rank);
  return values;
}

// Over the ranks of the job that take part.
std::vector<float> SumOverHosts(const std::vector<int>& ranks, int64_t count, uint64_t number) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    for (const int r : ranks) {
      values[static_cast<size_t>(i)] += static_cast<float>(ExactValue(DType::kF32, number, r, i));
    }
  }
  return values;
}

void ExpectSumOverHosts(const GpuRank& rank, Communicator& communicator, const std::vector<int>& ranks, int64_t count) {
  auto tensor = rank.Tensor(DType::kF32, count, rank.stream);
  const auto in = InputOverHosts(rank.rank, count, 5);
  std::vector<float> out(in.size());
  rank.Put(tensor.view, in.data());
  ASSERT_THAT(communicator.AllReduce(tensor.view), IsOk());
  rank.Get(tensor.view, out.data());
  rank.Settle(rank.stream);
  EXPECT_EQ(out, SumOverHosts(ranks, count, 5));
}

// Small ones go staged, large ones do not, and the ranks stay in step.
TEST(GpuHostsTest, CallsOfAllSizesByTurns) {
  for (const HostSizes& hosts : {HostSizes{2, 2}, HostSizes{1, 2, 3}}) {
    RunOnSharedGpus(hosts, 2, [&](GpuRank& rank) {
      std::vector<int> all(static_cast<size_t>(rank.rank.size));
      for (size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
      for (const int64_t count : {10'001, 3, 0, 1000, 33, 32, 4000}) ExpectSumOverHosts(rank, rank.world(), all, count);
    });
  }
}

// Each communicator has what its own ranks can do: a hierarchy of two hosts, then one rank of each, then one host's.
TEST(GpuHostsTest, PartsOfACommunicatorChooseForThemselves) {
  RunOnSharedGpus({2, 2}, 3, [](GpuRank& rank) {
    for (const auto& groups : std::vector<std::vector<std::vector<int>>>{
             {{3, 0, 1}, {2}}, {{0, 2}, {3, 1}}, {{1, 0}, {2, 3}}, {{0, 1, 2, 3}}}) {
      for (const auto& group : groups) {
        if (std::ranges::count(group, rank.rank.rank) == 0) continue;
        auto part = rank.world().Split(group);
        ASSERT_THAT(part, IsOk());
        ExpectSumOverHosts(rank, **part, group, 3000);
      }
    }
    ExpectSumOverHosts(rank, rank.world(), {0, 1, 2, 3}, 3000);
  });
}

TEST(GpuHostsTest, OnTwoStreamsAndBesideOthers) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    RunOnSharedGpus({2, 2}, seed, [&](GpuRank& rank) {
      void* const other = *rank.gpu->CreateStream();
      constexpr int64_t kCount = 5001;
      auto a = rank.Tensor(DType::kF32, kCount, rank.stream), b = rank.Tensor(DType::kF32, kCount, other);
      const auto in = InputOverHosts(rank.rank, kCount, 1), late = InputOverHosts(rank.rank, kCount, 2);
      std::vector<float> first(in.size()), second(in.size()), third(in.size());
      rank.Put(a.view, in.data());
      ASSERT_THAT(rank.world().AllReduce(a.view, b.view), IsOk());
      rank.Put(a.view, late.data());  // the input was read
      rank.Get(b.view, first.data());
      Work one = rank.world().AllReduceAsync(a.view), two = rank.world().BroadcastAsync(b.view, 3);
      ASSERT_THAT(one.Wait(), IsOk());
      rank.Get(a.view, second.data());
      ASSERT_THAT(two.Wait(), IsOk());
      rank.Get(b.view, third.data());
      rank.Settle(rank.stream);
      rank.Settle(other);
      EXPECT_EQ(first, SumOverHosts({0, 1, 2, 3}, kCount, 1)) << seed;
      EXPECT_EQ(second, SumOverHosts({0, 1, 2, 3}, kCount, 2)) << seed;
      EXPECT_EQ(third, first) << seed;
      rank.gpu->DestroyStream(other);
    });
  }
}

// What they had is freed at the communicator's end, and not in the call, for that waits for the other ranks.
TEST(GpuHostsTest, WhereMemoryCannotBeSharedAllGoOnStaged) {
  RunOnSharedGpus({2, 2}, 1, [](GpuRank& rank) {
    if (rank.rank.rank == 2) rank.gpu->sharing().Refuse(absl::UnavailableError("the GPUs are no peers"));
    const std::vector<int> ranks = {0, 1, 2, 3};
    auto all = rank.world().Split(ranks);
    ASSERT_THAT(all, IsOk());
    rank.Meet();
    const size_t before = rank.gpu->allocations();
    rank.Meet();
    for (const int64_t count : {5000, 1000}) ExpectSumOverHosts(rank, **all, ranks, count);
    rank.Meet();
    EXPECT_EQ(rank.gpu->allocations(), before + 2);  // an area for each rank
    rank.Meet();
    all->reset();
    rank.Meet();
    EXPECT_EQ(rank.gpu->allocations(), before);
  });
}

TEST(GpuHostsTest, AGpuThatHangsIsNamedByTheDeadline) {
  RunOnSharedGpus({2, 2}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 6000, rank.stream);
    ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    rank.Meet();
    const bool hangs = rank.rank.rank >= 2;
    if (hangs) rank.gpu->Stall(true);
    const absl::Status status = rank.world().AllReduce(tensor.view, {.timeout = TimeoutOf(hangs)});
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::ContainsRegex("GPU 0 of rank [23] had not copied its share of chunk 1 of 6 to the host"));
    EXPECT_THAT(rank.world().AllReduce(tensor.view), MatchesStatus(StatusCode::kFailedPrecondition, "unusable"));
    rank.gpu->Stall(false);
    rank.gpu->Free(nullptr);  // does all that is queued
  });
}

TEST(GpuHostsTest, AGpuThatFailsEndsTheCallOnAllRanks) {
  RunOnSharedGpus({2, 2}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 6000, rank.stream);
    ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    rank.Meet();
    if (rank.rank.rank == 2) rank.gpu->Fail(absl::InternalError("fell off the bus"));
    EXPECT_THAT(std::string(rank.world().AllReduce(tensor.view).message()),
                testing::AnyOf(testing::HasSubstr("fell off the bus"), testing::HasSubstr("'s GPU failed")));
    EXPECT_FALSE(rank.world().Barrier().ok());
    rank.gpu->Fail(absl::OkStatus());
    rank.gpu->Free(nullptr);
  });
}

// A rank that shuts down while the others are in a call.
TEST(GpuHostsTest, ARankThatLeavesEndsTheCallsOfOthers) {
  RunOnSharedGpus({2, 2}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 6000, rank.stream);
    ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    rank.Meet();
    if (rank.rank.rank == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      rank.runtime->Shutdown();
      return;
    }
    const auto began = std::chrono::steady_clock::now();
    EXPECT_THAT(rank.world().AllReduce(tensor.view), MatchesStatus(StatusCode::kAborted, "rank 3"));
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
    rank.gpu->Free(nullptr);
  });
}

TEST(GpuHostsTest, HostAndGpuAreNotMixed) {
  RunOnSharedGpus({2, 2}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 3000, rank.stream);
    ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    rank.Meet();
    std::vector<float> host(3000, 1.0f);
    const TensorView mine = rank.rank.rank == 1 ? TensorView(host) : tensor.view;
    const absl::Status status = rank.world().AllReduce(mine);
    EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "3000 elements on a GPU"));
    rank.gpu->Free(nullptr);
  });
}

}  // namespace
}  // namespace gyre
