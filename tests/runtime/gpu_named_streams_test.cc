// Operations by name on tensors that are on GPUs: their place in the order of the program's streams, and their memory.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "device/gpu_wait.h"
#include "gmock/gmock.h"
#include "runtime/gpu_named_fixture.h"

namespace gyre {
namespace {

using support::GpuRank;
using support::HostSizes;
using support::HostValues;
using support::IsOk;
using support::MakeNamed;
using support::MatchesStatus;
using support::Owner;
using support::RunOnGpus;
using support::Sums;
using support::Values;

constexpr std::chrono::seconds kPatience{20};
constexpr std::chrono::milliseconds kAWhile{50};  // for what must not happen

// Whether so many operations have been carried out. A GPU may have done none of them by then.
bool HasCarriedOut(const NamedOperations& named, int64_t operations) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (named.statistics().operations < operations) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// As when a backward pass goes on behind a gradient that was submitted: what it needs may be late.
TEST(GpuNamedStreamsTest, WhatIsQueuedAfterASubmissionIsNotWaitedFor) {
  RunOnGpus({2}, 5, [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    HostValues values(rank);
    void* const held = *rank.gpu->CreateStream();
    auto tensor = rank.Tensor(DType::kF32, 900, rank.stream);
    const auto late = rank.gpu->CreateEvent();
    ASSERT_THAT(late, IsOk());
    rank.gpu->Hold(held, true);
    ASSERT_THAT(rank.gpu->Record(*late, held), IsOk());
    values.Put(tensor.view, Values(rank.rank.rank, 1, 0, 900));
    Work work = named->AllReduce("a", tensor.view);
    ASSERT_THAT(rank.gpu->Wait(rank.stream, *late), IsOk());
    ASSERT_THAT(work.Wait(), IsOk());
    rank.gpu->Hold(held, false);
    values.Expect(tensor.view, Sums(2, 1, 0, 900));
    values.Compare({rank.stream});
    rank.gpu->DestroyEvent(*late);
    rank.gpu->DestroyStream(held);
    ASSERT_THAT(rank.world().Barrier(), IsOk());
  });
}

// The same the other way round: the operation has ended on the host, and cannot begin on the GPU.
TEST(GpuNamedStreamsTest, WhatIsQueuedBeforeTheWaitDoesNotWait) {
  const auto body = [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    HostValues values(rank);
    void* const held = *rank.gpu->CreateStream();
    {
      auto in = rank.Tensor(DType::kF32, 900, held), out = rank.Tensor(DType::kF32, 900, rank.stream);
      auto other = rank.Tensor(DType::kF32, 10, rank.stream);
      const auto passed = rank.gpu->CreateEvent();
      ASSERT_THAT(passed, IsOk());
      rank.gpu->Hold(held, true);
      values.Put(in.view, Values(rank.rank.rank, 1, 0, 900));
      Work work = named->AllReduce("a", in.view, out.view);
      ASSERT_TRUE(HasCarriedOut(*named, 1));
      values.Put(other.view, Values(0, 2, 0, 10));
      ASSERT_THAT(rank.gpu->Record(*passed, rank.stream), IsOk());
      const auto done = device::AwaitEvent(*rank.gpu, *passed, std::chrono::steady_clock::now() + kPatience);
      ASSERT_THAT(done, IsOk());
      EXPECT_TRUE(*done);
      rank.gpu->Hold(held, false);
      ASSERT_THAT(work.Wait(), IsOk());
      ASSERT_THAT(rank.world().Barrier(), IsOk());  // what the other rank held, this one's result waits for
      values.Expect(out.view, Sums(rank.rank.size, 1, 0, 900));
      values.Compare({held, rank.stream});
      rank.gpu->DestroyEvent(*passed);
    }
    rank.gpu->DestroyStream(held);
    ASSERT_THAT(rank.world().Barrier(), IsOk());
  };
  RunOnGpus({1}, 6, body);
  RunOnGpus({2}, 6, body, Owner::kHost);
}

TEST(GpuNamedStreamsTest, WhatIsQueuedOnceItIsDoneComesAfter) {
  const auto body = [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    HostValues values(rank);
    auto tensor = rank.Tensor(DType::kF32, 900, rank.stream);
    for (int step = 0; step < 5; ++step) {
      values.Put(tensor.view, Values(rank.rank.rank, 1, step, 900));
      const Work work = named->AllReduce("a", tensor.view);
      const auto end = std::chrono::steady_clock::now() + kPatience;
      while (!work.Done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      ASSERT_TRUE(work.Done());
      values.Expect(tensor.view, Sums(rank.rank.size, 1, step, 900));
    }
    values.Compare({rank.stream});
    ASSERT_THAT(rank.world().Barrier(), IsOk());
  };
  RunOnGpus({1}, 7, body);
  RunOnGpus({2}, 7, body);
  RunOnGpus({2}, 7, body, Owner::kHost);
}

// A capture that has begun in the meantime is left alone; the stream comes after the operation once it is waited for
// again.
TEST(GpuNamedStreamsTest, AStreamThatIsCapturedGetsItsPlaceAfterwards) {
  const auto body = [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    HostValues values(rank);
    void* const held = *rank.gpu->CreateStream();
    {
      auto in = rank.Tensor(DType::kF32, 900, held), out = rank.Tensor(DType::kF32, 900, rank.stream);
      const auto passed = rank.gpu->CreateEvent();
      ASSERT_THAT(passed, IsOk());
      rank.gpu->Hold(held, true);
      values.Put(in.view, Values(rank.rank.rank, 1, 0, 900));
      Work work = named->AllReduce("a", in.view, out.view);
      ASSERT_TRUE(HasCarriedOut(*named, 1));
      rank.Settle(rank.stream);
      const auto capture = rank.gpu->Capture(rank.stream);
      ASSERT_THAT(capture, IsOk());
      EXPECT_THAT(work.Wait(), MatchesStatus(absl::StatusCode::kFailedPrecondition, "wait for the operation again"));
      EXPECT_FALSE(work.Done());
      ASSERT_THAT((*capture)->End(), IsOk());
      ASSERT_THAT(work.Wait(), IsOk());
      EXPECT_TRUE(work.Done());
      values.Expect(out.view, Sums(rank.rank.size, 1, 0, 900));
      ASSERT_THAT(rank.gpu->Record(*passed, rank.stream), IsOk());
      const auto early = device::AwaitEvent(*rank.gpu, *passed, std::chrono::steady_clock::now() + kAWhile);
      ASSERT_THAT(early, IsOk());
      EXPECT_FALSE(*early) << "the operation cannot have begun";
      ASSERT_THAT(rank.world().Barrier(), IsOk());
      rank.gpu->Hold(held, false);
      ASSERT_THAT(rank.world().Barrier(), IsOk());  // what the other rank held, this one's result waits for
      values.Compare({held, rank.stream});
      rank.gpu->DestroyEvent(*passed);
    }
    rank.gpu->DestroyStream(held);
    ASSERT_THAT(rank.world().Barrier(), IsOk());
  };
  RunOnGpus({1}, 13, body);
  RunOnGpus({2}, 13, body, Owner::kHost);
}

// One of 32 MiB and more, and then two in one call, which would not fit into the first's.
TEST(GpuNamedStreamsTest, AGroupOnTwoStreamsMayBeSeveralCalls) {
  RunOnGpus({1}, 8, [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    void* const other = *rank.gpu->CreateStream();
    {
      constexpr int64_t kLarge = (4 << 20) + 3;
      auto one = rank.Tensor(DType::kF64, kLarge, rank.stream), two = rank.Tensor(DType::kF64, kLarge, other);
      auto three = rank.Tensor(DType::kF64, 10, rank.stream);
      const std::vector<NamedTensor> group = {{"one", one.view}, {"two", two.view}, {"three", three.view}};
      for (int step = 1; step <= 2; ++step) {
        HostValues values(rank);
        for (const NamedTensor& tensor : group) {
          const auto count = static_cast<size_t>(tensor.view.count);
          values.Put(tensor.view, std::vector<double>(count, step));
        }
        ASSERT_THAT(named->AllReduce(group, {.postscale = 2}).Wait(), IsOk());
        for (const NamedTensor& tensor : group) {
          const auto count = static_cast<size_t>(tensor.view.count);
          values.Expect(tensor.view, std::vector<double>(count, 2 * step));
        }
        values.Compare({rank.stream, other});
      }
    }
    rank.gpu->DestroyStream(other);
  });
}

// --- Memory ---

TEST(GpuNamedStreamsTest, GatheringMoreWaitsForNothing) {
  RunOnGpus({1}, 9, [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    HostValues values(rank);
    auto mine = rank.Tensor(DType::kF32, 1000, rank.stream);
    Gathered gathered;
    values.Put(mine.view, Values(0, 1, 0, 1000));
    ASSERT_THAT(named->AllGather("g", mine.view.Slice(0, 10), gathered).Wait(), IsOk());
    const void* const first = gathered.on_gpu.data;
    const int blocked = rank.gpu->blocked();
    rank.gpu->Hold(rank.stream, true);
    values.Expect(gathered.on_gpu, Values(0, 1, 0, 10));  // the program reads it yet
    Work work = named->AllGather("g", mine.view, gathered);
    ASSERT_TRUE(HasCarriedOut(*named, 2));
    EXPECT_EQ(rank.gpu->blocked(), blocked);
    rank.gpu->Hold(rank.stream, false);
    ASSERT_THAT(work.Wait(), IsOk());
    EXPECT_NE(gathered.on_gpu.data, first);
    EXPECT_EQ(gathered.on_gpu.count, 1000);
    values.Expect(gathered.on_gpu, Values(0, 1, 0, 1000));
    values.Compare({rank.stream});
    const size_t before = rank.gpu->allocations();
    gathered = {};
    EXPECT_EQ(rank.gpu->allocations(), before - 2) << "what it had outgrown, too";
  });
}

TEST(GpuNamedStreamsTest, CopiesAndOtherStreamsHaveMemoryOfTheirOwn) {
  const auto body = [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    HostValues values(rank);
    const int me = rank.rank.rank, size = rank.rank.size;
    const auto all = [&](int step) {
      std::vector<float> ranks;
      for (int other = 0; other < size; ++other) {
        const std::vector<float> theirs = Values(other, 1, step, 20);
        ranks.insert(ranks.end(), theirs.begin(), theirs.end());
      }
      return ranks;
    };
    void* const other = *rank.gpu->CreateStream();
    {
      auto mine = rank.Tensor(DType::kF32, 20, rank.stream), there = rank.Tensor(DType::kF32, 20, other);
      Gathered gathered;
      std::vector<Gathered> kept;
      for (int step = 0; step < 3; ++step) {
        values.Put(mine.view, Values(me, 1, step, 20));
        ASSERT_THAT(named->AllGather("g", mine.view, gathered).Wait(), IsOk());
        kept.push_back(gathered);
      }
      values.Put(there.view, Values(me, 1, 3, 20));
      ASSERT_THAT(named->AllGather("g", there.view, gathered).Wait(), IsOk());
      EXPECT_EQ(gathered.on_gpu.device, there.view.device);
      values.Expect(gathered.on_gpu, all(3));
      for (int step = 0; step < 3; ++step) values.Expect(kept[static_cast<size_t>(step)].on_gpu, all(step));
      values.Compare({rank.stream, other});
      ASSERT_THAT(named->AllGather("g", mine.view, gathered).Wait(), IsOk());  // nobody else has the other stream's
      EXPECT_EQ(gathered.on_gpu.device, mine.view.device);
      values.Expect(gathered.on_gpu, all(2));
      values.Compare({rank.stream});
      // What is on the host takes none.
      std::vector<float> on_host = {1.0f};
      ASSERT_THAT(named->AllGather("h", on_host, gathered).Wait(), IsOk());
      EXPECT_EQ(gathered.memory, nullptr);
      EXPECT_EQ(gathered.on_gpu.data, nullptr);
      EXPECT_EQ(gathered.bytes.size(), static_cast<size_t>(size) * sizeof(float));
      ASSERT_THAT(rank.world().Barrier(), IsOk());
    }
    rank.gpu->DestroyStream(other);
  };
  RunOnGpus({1}, 10, body);
  RunOnGpus({1, 1}, 10, body);
  RunOnGpus({3}, 10, body, Owner::kHost);
}

// Of 1.2 and 3.6 MB, and then of 6 MB that are neutral to a minimum.
TEST(GpuNamedStreamsTest, AJoinedRankMakesRoomForMore) {
  const auto body = [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    HostValues values(rank);
    auto first = rank.Tensor(DType::kF32, 10, rank.stream);
    values.Put(first.view, Values(rank.rank.rank, 0, 0, 10));
    ASSERT_THAT(named->AllReduce("first", first.view).Wait(), IsOk());
    if (rank.rank == 0) {
      auto tensor = rank.Tensor(DType::kF32, 1'500'000, rank.stream);
      values.Put(tensor.view, Values(0, 1, 0, tensor.view.count));
      Gathered gathered;
      for (const int64_t count : {300'000, 900'000}) {
        ASSERT_THAT(named->AllGather("g", tensor.view.Slice(0, count), gathered).Wait(), IsOk());
        EXPECT_THAT(gathered.counts, testing::ElementsAre(count, 0));
        values.Expect(gathered.on_gpu, Values(0, 1, 0, count));
      }
      ASSERT_THAT(named->AllReduce("least", tensor.view, {.op = ReduceOp::kMin}).Wait(), IsOk());
      values.Expect(tensor.view, Values(0, 1, 0, tensor.view.count));
      values.Compare({rank.stream});
    }
    ASSERT_THAT(named->Join().Wait(), IsOk());
    ASSERT_THAT(rank.world().Barrier(), IsOk());
  };
  RunOnGpus({2}, 11, body, Owner::kHost);
}

// 1.6 and 2 MB, of what has grown and of what a joined rank has room for, where 3.2 would be too much.
TEST(GpuNamedStreamsTest, WhereTwiceAsMuchDoesNotFitItIsWhatIsNeeded) {
  const auto body = [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    HostValues values(rank);
    auto tensor = rank.Tensor(DType::kF32, 500'000, rank.stream);
    values.Put(tensor.view, Values(rank.rank.rank, 1, 0, tensor.view.count));
    ASSERT_THAT(named->AllReduce("first", tensor.view.Slice(0, 10)).Wait(), IsOk());
    rank.gpu->LimitPieces(2'500'000);
    if (rank.rank.rank == 0) {
      values.Put(tensor.view, Values(0, 1, 0, tensor.view.count));
      Gathered gathered;
      for (const int64_t count : {400'000, 500'000}) {
        ASSERT_THAT(named->AllGather("g", tensor.view.Slice(0, count), gathered).Wait(), IsOk());
        values.Expect(gathered.on_gpu, Values(0, 1, 0, count));
      }
      values.Compare({rank.stream});
    }
    ASSERT_THAT(named->Join().Wait(), IsOk());
    ASSERT_THAT(rank.world().Barrier(), IsOk());
  };
  RunOnGpus({1}, 14, body);
  RunOnGpus({2}, 14, body, Owner::kHost);
}

// The end frees nothing then, for that would wait: FakeGpu sees to that.
TEST(GpuNamedStreamsTest, TheEndDoesNotWaitForAGpuThatHangs) {
  RunOnGpus({1}, 12, [](GpuRank& rank) {
    auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    auto one = rank.Tensor(DType::kF32, 10, rank.stream), two = rank.Tensor(DType::kF32, 900, rank.stream);
    const std::vector<NamedTensor> group = {{"one", one.view}, {"two", two.view}};
    ASSERT_THAT(named->AllReduce(group).Wait(), IsOk());
    const int blocked = rank.gpu->blocked();
    rank.gpu->Stall(true);
    ASSERT_THAT(named->AllReduce(group).Wait(), IsOk());
    named.reset();
    EXPECT_EQ(rank.gpu->blocked(), blocked);
    rank.gpu->Stall(false);
    rank.gpu->Free(nullptr);  // does all that is queued
  });
}

}  // namespace
}  // namespace gyre
