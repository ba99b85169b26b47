// What tensors on GPUs add to calls: the order of streams, what is refused, and GPUs that hang or fail. What operations
// compute there, gpu_conformance_test says.
#include <string>
#include <utility>
#include <vector>

#include "device/gpu_under_test.h"
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
using support::RunOnGpus;
using support::TimeoutOf;

constexpr unsigned kSeeds = 6;

std::vector<float> Input(const GpuRank& rank, int64_t count, uint64_t number) {
  std::vector<float> values(static_cast<size_t>(count));
  FillExact(values, number, rank.rank);
  return values;
}

std::vector<float> Sum(const GpuRank& rank, int64_t count, uint64_t number) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    for (int r = 0; r < rank.rank.size; ++r) {
      values[static_cast<size_t>(i)] += static_cast<float>(ExactValue(DType::kF32, number, r, i));
    }
  }
  return values;
}

TEST(GpuTensorsTest, CallsComeAfterWhatWasQueuedAndBeforeWhatIs) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    for (const HostSizes& hosts : {HostSizes{1}, HostSizes{2}, HostSizes{1, 1}}) {
      RunOnGpus(hosts, seed, [&](GpuRank& rank) {
        void* const other = *rank.gpu->CreateStream();
        for (const int64_t count : {0, 1, 513, 5001}) {
          // In place on one stream; then from one stream to another; asynchronously, several at once.
          const auto number = static_cast<uint64_t>(count);
          auto a = rank.Tensor(DType::kF32, count, rank.stream), b = rank.Tensor(DType::kF32, count, other);
          const std::vector<float> in = Input(rank, count, number), late = Input(rank, count, number + 1);
          std::vector<float> first(in.size()), second(in.size()), third(in.size());
          rank.Put(a.view, in.data());
          ASSERT_THAT(rank.world().AllReduce(a.view), IsOk());
          rank.Get(a.view, first.data());
          rank.Put(a.view, late.data());
          rank.Put(b.view, in.data());
          ASSERT_THAT(rank.world().AllReduce(a.view, b.view), IsOk());
          rank.Get(b.view, second.data());
          Work one = rank.world().AllReduceAsync(a.view), two = rank.world().BroadcastAsync(b.view, 0);
          ASSERT_THAT(one.Wait(), IsOk());
          rank.Get(a.view, third.data());
          ASSERT_THAT(two.Wait(), IsOk());
          rank.Settle(rank.stream);
          rank.Settle(other);
          EXPECT_EQ(first, Sum(rank, count, number)) << seed;
          EXPECT_EQ(second, Sum(rank, count, number + 1)) << seed;
          EXPECT_EQ(third, Sum(rank, count, number + 1)) << seed;
        }
        rank.gpu->DestroyStream(other);
      });
    }
  }
}

TEST(GpuTensorsTest, MessagesBothWaysAtOnce) {
  for (const HostSizes& hosts : {HostSizes{2}, HostSizes{1, 1}}) {
    RunOnGpus(hosts, 3, [](GpuRank& rank) {
      const int peer = 1 - rank.rank;
      constexpr int64_t kCount = 4001;
      auto out = rank.Tensor(DType::kF32, kCount, rank.stream), in = rank.Tensor(DType::kF32, kCount, nullptr);
      const std::vector<float> sent = Input(rank, kCount, 9);
      std::vector<float> got(kCount), expected(kCount);
      rank.Put(out.view, sent.data());
      Work sending = rank.world().SendAsync(out.view, peer);
      ASSERT_THAT(rank.world().Receive(in.view, peer), IsOk());
      rank.Get(in.view, got.data());
      ASSERT_THAT(sending.Wait(), IsOk());
      rank.Settle(nullptr);
      FillExact(expected, 9, peer);
      EXPECT_EQ(got, expected);
      EXPECT_THAT(rank.world().Send(out.view, 7), MatchesStatus(StatusCode::kInvalidArgument, "destination 7"));
    });
  }
}

TEST(GpuTensorsTest, HostAndGpuAreNotMixed) {
  RunOnGpus({3}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 100, rank.stream);
    std::vector<float> host(100, 1.0f);
    const TensorView mine = rank.rank == 1 ? TensorView(host) : tensor.view;
    EXPECT_THAT(rank.world().AllReduce(mine), MatchesStatus(StatusCode::kInvalidArgument, "100 elements on a GPU"));
    // Here it is wrong on each rank alone; then ranks differ in what they ask for.
    EXPECT_THAT(rank.world().AllReduce(tensor.view, host),
                MatchesStatus(StatusCode::kInvalidArgument, "input (on GPU 0) and output (on the host)"));
    const TensorView part = tensor.view.Slice(0, rank.rank == 2 ? 99 : 100);
    EXPECT_THAT(rank.world().AllReduceAsync(part).Wait(),
                MatchesStatus(StatusCode::kInvalidArgument, "f32, 99 elements on a GPU"));
    EXPECT_THAT(rank.world().AllReduce(TensorView(host.data(), 100, DType::kF32, {.gpu = -2})),
                MatchesStatus(StatusCode::kInvalidArgument, "GPU -2"));
    const Device each_threads = rank.on(reinterpret_cast<void*>(uintptr_t{2}));
    EXPECT_THAT(rank.world().AllReduce(TensorView(tensor.view.data, 100, DType::kF32, each_threads)),
                MatchesStatus(StatusCode::kInvalidArgument, "cudaStreamPerThread"));
    // The group has stayed in step.
    const std::vector<float> in = Input(rank, 100, 4);
    std::vector<float> out(100);
    rank.Put(tensor.view, in.data());
    ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    rank.Get(tensor.view, out.data());
    rank.Settle(rank.stream);
    EXPECT_EQ(out, Sum(rank, 100, 4));
  });
}

TEST(GpuTensorsTest, ACommunicatorStaysOnOneGpu) {
  RunOnGpus({1}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 1, rank.stream);
    ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    auto other = rank.runtime->Allocate(4, {.gpu = 1});
    ASSERT_THAT(other, IsOk());
    EXPECT_THAT(rank.world().AllReduce(TensorView(other->data(), 1, DType::kF32, {.gpu = 1})),
                MatchesStatus(StatusCode::kInvalidArgument, "were on GPU 0"));
  });
}

TEST(GpuTensorsTest, Memory) {
  RunOnGpus({1}, 1, [](GpuRank& rank) {
    const size_t before = rank.gpu->allocations();
    {
      auto some = rank.runtime->Allocate(1000, rank.device());
      ASSERT_THAT(some, IsOk());
      EXPECT_EQ(some->bytes(), 1000);
      EXPECT_EQ(some->device(), rank.device());
      EXPECT_EQ(rank.gpu->allocations(), before + 1);
      Buffer moved = *std::move(some);
      EXPECT_EQ(moved.device(), rank.device());
    }
    EXPECT_EQ(rank.gpu->allocations(), before);
    EXPECT_THAT(rank.runtime->Allocate(-1, rank.device()), MatchesStatus(StatusCode::kInvalidArgument, "-1 bytes"));
    EXPECT_FALSE(rank.runtime->Allocate(10, Device())->device().on_gpu());
    EXPECT_THAT(rank.runtime->Allocate(10, {.gpu = -2}), MatchesStatus(StatusCode::kInvalidArgument, "GPU -2"));
  });
}

// However many operations there are, memory is pinned for as many as there were at once.
TEST(GpuTensorsTest, StagingMemoryIsUsedAgain) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 3000, rank.stream);
    ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    const int64_t pinned = rank.gpu->pinned();
    EXPECT_GE(pinned, support::kSmallSlots.slot_bytes * support::kSmallSlots.slots);
    for (int i = 0; i < 10; ++i) ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    EXPECT_EQ(rank.gpu->pinned(), pinned);
  });
}

TEST(GpuTensorsTest, AGpuThatHangsIsNamedByTheDeadline) {
  // Alone, or while the other rank waits for a GPU as well.
  for (const auto& [hosts, both] : {std::pair(HostSizes{2}, false), {{1, 1}, false}, {{2}, true}, {{1, 1}, true}}) {
    RunOnGpus(hosts, 1, [both = both](GpuRank& rank) {
      auto tensor = rank.Tensor(DType::kF32, 3000, rank.stream);
      ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
      const bool hangs = rank.rank == 1;
      rank.Meet();
      rank.gpu->Stall(hangs || both);
      const absl::Status status = rank.world().AllReduce(tensor.view, {.timeout = TimeoutOf(hangs)});
      if (hangs) {
        EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded,
                                          "timed out after 2 s: GPU 0 of rank 1 had not copied piece 1 of 6"));
      } else {
        EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1 gave the communicator up"));
      }
      EXPECT_THAT(rank.world().AllReduce(tensor.view), MatchesStatus(StatusCode::kFailedPrecondition, "unusable"));
      rank.gpu->Stall(false);
      rank.gpu->Free(nullptr);  // does all that is queued
    });
  }
}

// The program is told of the failure, and writes the tensor anew: what the failed call still has under way comes first.
TEST(GpuTensorsTest, WhatACallThatFailedHasQueuedComesBeforeWhatTheProgramDoes) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    RunOnGpus({2}, seed, [](GpuRank& rank) {
      auto tensor = rank.Tensor(DType::kF32, 3000, rank.stream);
      std::vector<float> first(3000, 1.0f), anew(3000, 7.0f), got(3000);
      rank.Put(tensor.view, first.data());
      ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
      rank.Settle(rank.stream);
      const bool receives = rank.rank == 1;
      if (receives) rank.gpu->Hold(rank.stream, true);
      rank.Meet();
      EXPECT_THAT(rank.world().Broadcast(tensor.view, 0, {.timeout = TimeoutOf(receives)}),
                  MatchesStatus(StatusCode::kDeadlineExceeded, "had not emptied the slot for piece 4 of 6"));
      rank.Put(tensor.view, anew.data());
      rank.Get(tensor.view, got.data());
      rank.gpu->Hold(rank.stream, false);
      rank.Settle(rank.stream);
      rank.gpu->Free(nullptr);
      EXPECT_EQ(got, anew);
      rank.Get(tensor.view, got.data());
      rank.Settle(rank.stream);
      EXPECT_EQ(got, anew);
    });
  }
}

TEST(GpuTensorsTest, AStreamThatIsCapturedIsRefused) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    void* const captured = *rank.gpu->CreateStream();
    rank.gpu->LetProgramCapture(captured);
    auto tensor = rank.Tensor(DType::kF32, 10, rank.stream);
    const Device device = rank.on(rank.rank == 1 ? captured : rank.stream);
    const TensorView view(tensor.view.data, 10, DType::kF32, device);
    EXPECT_THAT(rank.world().AllReduce(view).message(), testing::HasSubstr("the stream is being captured"));
    EXPECT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    rank.gpu->DestroyStream(captured);
  });
}

TEST(GpuTensorsTest, AGpuThatFailsEndsTheCallOnAllRanks) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto tensor = rank.Tensor(DType::kF32, 3000, rank.stream);
    ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
    rank.Meet();
    if (rank.rank == 1) rank.gpu->Fail(absl::InternalError("fell off the bus"));
    EXPECT_THAT(rank.world().AllReduce(tensor.view).message(), testing::HasSubstr("fell off the bus"));
    rank.gpu->Fail(absl::OkStatus());
    rank.gpu->Free(nullptr);
  });
}

// Without a GPU, or without CUDA, it is said which of the two.
TEST(GpuTensorsTest, WithoutCudaTensorsOnGpusAreRefused) {
  support::RunThreads(1, [](const support::Rank& rank) {
    auto runtime = support::JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    const auto buffer = runtime->Allocate(8, {.gpu = 0});
    if (buffer.ok()) GTEST_SKIP() << "this machine has a GPU";
    EXPECT_EQ(buffer.status().code(),
              device::CudaModuleIsBuilt() ? StatusCode::kUnavailable : StatusCode::kUnimplemented)
        << buffer.status();
    float value = 1;
    EXPECT_FALSE(runtime->world().AllReduce(TensorView(&value, 1, DType::kF32, {.gpu = 0})).ok());
    EXPECT_THAT(runtime->world().Barrier(), IsOk());
  });
}

}  // namespace
}  // namespace gyre
