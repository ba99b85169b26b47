// NCCL's allreduces in graphs, over a fake NCCL and a fake GPU: captured by all ranks, and launched by all again and
// again; and how communicators end of which graphs hold calls.
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "collectives/gpu/nccl_fixture.h"
#include "collectives/nccl/connection.h"
#include "gmock/gmock.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using internal::Call;
using internal::CallKind;
using support::IsOk;
using support::MatchesStatus;
using testing::Each;

constexpr int64_t kCount = 500;
constexpr auto kRoom = static_cast<int>(internal::nccl::Connection::kMostFlights);

// A graph on each rank that adds up the ranks' values, and what is done with it.
class NcclGraph : public Nccl {
 protected:
  void StartWithGraphs(int size, ReduceOp op = ReduceOp::kSum, DType dtype = DType::kF32) {
    Start(size);
    op_ = op;
    dtype_ = dtype;
    EXPECT_THAT(AllReduce(), Each(IsOk()));  // connects
    for (int r = 0; r < size; ++r) {
      streams_.push_back(*host_->gpu()->CreateStream());
      values_.emplace_back(static_cast<size_t>(kCount), -1.0f);
    }
    HostOfRanks::Operations operations;
    for (int r = 0; r < size; ++r) {
      graphs_.push_back(*host_->gpu()->Capture(streams_[static_cast<size_t>(r)]));
      operations.push_back(Make(r, true, std::chrono::seconds(5)));
    }
    EXPECT_THAT(Ended(operations), Each(IsOk()));
    for (const auto& graph : graphs_) EXPECT_THAT(graph->End(), IsOk());
  }

  void TearDown() override {
    if (host_ != nullptr) host_->gpu()->Stall(false);
    End();
    graphs_.clear();
    if (host_ != nullptr) {
      host_->gpu()->Free(nullptr);
      for (const device::Gpu::Stream stream : streams_) host_->gpu()->DestroyStream(stream);
    }
    Nccl::TearDown();
  }

  std::shared_ptr<internal::Pollable> Make(int rank, bool capturing, std::chrono::milliseconds timeout) {
    const auto index = static_cast<size_t>(rank);
    const TensorView values(values_[index].data(), kCount, dtype_);
    internal::GpuCall call =
        host_->OnGpu(rank, {.kind = CallKind::kAllReduce, .in = values, .out = values, .op = op_, .timeout = timeout});
    call.manner = {.graph = graphs_[index], .capturing = capturing};
    if (capturing) call.call.in.device.stream = call.call.out.device.stream = streams_[index];
    auto operation = backends_[index]->Make(call);
    operation->StartClock(std::chrono::steady_clock::now());
    return operation;
  }

  HostOfRanks::Operations Replays(std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
    HostOfRanks::Operations operations;
    for (int r = 0; r < host_->size(); ++r) operations.push_back(Make(r, false, timeout));
    return operations;
  }

  // In the order of the rank's own stream.
  void Fill(int rank, const std::vector<float>& with) {
    EXPECT_THAT(
        host_->gpu()->Copy(values_[static_cast<size_t>(rank)].data(), with.data(), kCount * 4, host_->stream(rank)),
        IsOk());
  }
  void Take(int rank, std::vector<float>& into) {
    into.resize(static_cast<size_t>(kCount));
    EXPECT_THAT(
        host_->gpu()->Copy(into.data(), values_[static_cast<size_t>(rank)].data(), kCount * 4, host_->stream(rank)),
        IsOk());
  }

  ReduceOp op_ = ReduceOp::kSum;
  DType dtype_ = DType::kF32;
  std::vector<device::Gpu::Stream> streams_;  // that are captured
  std::vector<std::vector<float>> values_;
  std::vector<std::shared_ptr<device::GpuGraph>> graphs_;
};

TEST_F(NcclGraph, WhatIsCapturedIsNotDone) {
  StartWithGraphs(3);
  host_->gpu()->Free(nullptr);
  for (const auto& values : values_) EXPECT_THAT(values, Each(-1.0f));
  EXPECT_EQ(nccl_->replays, 0);
}

TEST_F(NcclGraph, EachLaunchAddsUpWhatIsThereThen) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
    StartWithGraphs(3, op);
    constexpr int kSteps = 20;
    std::vector<std::vector<float>> in, out(3 * kSteps);
    for (int step = 0; step < kSteps; ++step) {
      for (int r = 0; r < 3; ++r) in.emplace_back(static_cast<size_t>(kCount), static_cast<float>(step * 30 + r));
    }
    const int launches = nccl_->launches;
    for (int step = 0; step < kSteps; ++step) {
      for (int r = 0; r < 3; ++r) Fill(r, in[static_cast<size_t>(3 * step + r)]);
      ASSERT_THAT(Ended(Replays()), Each(IsOk()));
      for (int r = 0; r < 3; ++r) Take(r, out[static_cast<size_t>(3 * step + r)]);
    }
    for (int r = 0; r < 3; ++r) ASSERT_THAT(host_->gpu()->Synchronize(host_->stream(r)), IsOk());
    for (int step = 0; step < kSteps; ++step) {
      const auto sum = static_cast<float>(90 * step + 3);
      for (int r = 0; r < 3; ++r) {
        EXPECT_THAT(out[static_cast<size_t>(3 * step + r)], Each(op == ReduceOp::kSum ? sum : sum / 3)) << step;
      }
    }
    EXPECT_EQ(nccl_->launches, launches);
    EXPECT_EQ(nccl_->replays, 3 * kSteps);
    TearDown();
    streams_.clear();
    values_.clear();
  }
}

// What NCCL leaves to do to a result is in the graph as well.
TEST_F(NcclGraph, ScalesAreInTheGraph) {
  StartWithGraphs(3, ReduceOp::kAverage, DType::kBF16);
  std::vector<BFloat16> in(2 * static_cast<size_t>(kCount));
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<std::vector<float>> filled;
    for (int r = 0; r < 3; ++r) {
      for (auto& each : in) each = BFloat16(static_cast<float>(3 * r));
      std::memcpy(filled.emplace_back(static_cast<size_t>(kCount)).data(), in.data(), kCount * 4);
      Fill(r, filled.back());
    }
    ASSERT_THAT(Ended(Replays()), Each(IsOk()));
    for (int r = 0; r < 3; ++r) {
      std::vector<float> out;
      Take(r, out);
      ASSERT_THAT(host_->gpu()->Synchronize(host_->stream(r)), IsOk());
      BFloat16 got;
      std::memcpy(&got.bits, out.data(), sizeof got.bits);
      EXPECT_EQ(static_cast<float>(got), 3.0f);
    }
  }
}

TEST_F(NcclGraph, OtherCallsComeBetween) {
  StartWithGraphs(2);
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> ones(static_cast<size_t>(kCount), 1.0f);
    for (int r = 0; r < 2; ++r) Fill(r, ones);
    ASSERT_THAT(Ended(Replays()), Each(IsOk()));
    Sum sum(*host_);
    ASSERT_THAT(Ended(sum.Make(backends_)), Each(IsOk()));
    sum.ExpectRight();
    for (const auto& values : values_) EXPECT_THAT(values, Each(2.0f));
  }
}

// --- How communicators end: in order ... ---

TEST_F(NcclGraph, AnEndInOrderDiscardsThem) {
  StartWithGraphs(2);
  ASSERT_THAT(Ended(Replays()), Each(IsOk()));
  End();
  EXPECT_EQ(nccl_->finalized, 2);
  EXPECT_EQ(nccl_->aborted, 0);
  EXPECT_THAT(graphs_[0]->Launch(streams_[0]), MatchesStatus(absl::StatusCode::kFailedPrecondition, "discarded"));
}

TEST_F(NcclGraph, OnesThatWereNeverLaunchedAreDiscardedToo) {
  StartWithGraphs(2);
  End();
  EXPECT_EQ(nccl_->finalized, 2);
}

// --- ... and by aborts ---

TEST_F(NcclGraph, ALaunchThatTheGpuNeverDoesIsAbortedAtTheDeadline) {
  StartWithGraphs(2);
  host_->gpu()->Stall(true);
  EXPECT_THAT(Ended(Replays(kShortTimeout)), Each(IsOk()));  // it has been queued
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  for (const absl::Status& status : Ended(Replays())) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kFailedPrecondition, "had not done it at its deadline"));
  }
}

TEST_F(NcclGraph, ALossAbortsWhatIsUnderWay) {
  StartWithGraphs(3);
  host_->gpu()->Stall(true);
  EXPECT_THAT(Ended(Replays()), Each(IsOk()));
  for (int r = 0; r < 3; ++r) host_->group(r)->node().LearnLoss(2, "rank 2 was lost: its process ended");
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_TRUE(nccl_->AbortsBecome(3));
}

// The other one's kernel waits until its rank learns of it, and aborts.
TEST_F(NcclGraph, AGraphThatOneRankCannotLaunchGivesTheCommunicatorUp) {
  StartWithGraphs(2);
  graphs_[1]->Discard();
  const auto statuses = Ended(Replays());
  EXPECT_FALSE(statuses[1].ok());
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  host_->gpu()->Free(nullptr);
  EXPECT_EQ(host_->gpu()->blocked(), 0);
}

// NCCL waits for the GPU to come to its graphs; calls do not, nor those of ranks that are to know why.
TEST_F(NcclGraph, OthersLearnTheCauseWhileAbortsWaitForTheGpu) {
  StartWithGraphs(2);
  host_->gpu()->Stall(true);
  EXPECT_THAT(Ended({Make(0, false, kShortTimeout), Make(1, false, std::chrono::seconds(30))}), Each(IsOk()));
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  EXPECT_EQ(nccl_->aborting, 2);
  for (const absl::Status& status : Ended(Replays())) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kFailedPrecondition, "had not done it at its deadline"));
  }
  EXPECT_EQ(nccl_->aborting, 2);
}

TEST_F(NcclGraph, AnEndLeavesAbortsBehindThatTheGpuHoldsUp) {
  StartWithGraphs(2);
  host_->gpu()->Stall(true);
  EXPECT_THAT(Ended(Replays(kShortTimeout)), Each(IsOk()));
  EXPECT_TRUE(host_->RunWatches());
  backends_.clear();
  EXPECT_TRUE(host_->RunWatches());
  EXPECT_EQ(nccl_->aborting, 2);
  EXPECT_EQ(nccl_->alive, 2);
  host_->gpu()->Stall(false);
  EXPECT_TRUE(nccl_->AliveBecome(0));
}

// The launch that does not come to an end may be a thread of NCCL's that adds to the graph.
TEST_F(NcclGraph, AnAbortLetsNcclEndACaptureFirst) {
  Start(2);
  EXPECT_THAT(AllReduce(), Each(IsOk()));
  nccl_->looks_at_captures = 30;
  const int launches = nccl_->launches;
  HostOfRanks::Operations operations;
  for (int r = 0; r < 2; ++r) {
    streams_.push_back(*host_->gpu()->CreateStream());
    values_.emplace_back(static_cast<size_t>(kCount), -1.0f);
    graphs_.push_back(*host_->gpu()->Capture(streams_.back()));
    operations.push_back(Make(r, true, std::chrono::seconds(5)));
  }
  for (int i = 0; i < 100'000 && nccl_->launches < launches + 2; ++i) operations[static_cast<size_t>(i) % 2]->Poll();
  for (int r = 0; r < 2; ++r) host_->group(r)->node().LearnLoss(1, "rank 1 was lost: its process ended");
  for (const auto& operation : operations) EXPECT_TRUE(operation->Check(std::chrono::steady_clock::now()));
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  for (const auto& graph : graphs_) EXPECT_FALSE(graph->End().ok());
}

// --- Room on the GPU ---

TEST_F(NcclGraph, NoMoreIsLaunchedThanTheGpuHasRoomFor) {
  StartWithGraphs(2);
  EXPECT_TRUE(host_->RunWatches());
  host_->gpu()->Stall(true);
  for (int i = 0; i < kRoom; ++i) ASSERT_THAT(Ended(Replays()), Each(IsOk()));
  const auto operations = Replays();
  EXPECT_FALSE(host_->Run(operations, kShortTimeout));
  EXPECT_EQ(nccl_->replays, 2 * kRoom);
  host_->gpu()->Stall(false);
  EXPECT_THAT(Ended(operations), Each(IsOk()));
  EXPECT_EQ(nccl_->replays, 2 * kRoom + 2);
}

TEST_F(NcclGraph, CallsThatFindNoRoomEndAtTheDeadline) {
  Start(2);
  EXPECT_THAT(AllReduce(), Each(IsOk()));
  EXPECT_TRUE(host_->RunWatches());
  host_->gpu()->Stall(true);
  for (int i = 0; i < kRoom; ++i) ASSERT_THAT(AllReduce(std::chrono::seconds(30)), Each(IsOk()));
  for (const absl::Status& status : AllReduce(kShortTimeout)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "waiting for the GPU to do earlier calls"));
  }
  EXPECT_TRUE(nccl_->AbortsBecome(2));
}

TEST_F(NcclGraph, ACaptureThatNcclDoesNotEndIsAbortedAtTheDeadline) {
  Start(2);
  EXPECT_THAT(AllReduce(), Each(IsOk()));
  nccl_->never_launches = true;
  HostOfRanks::Operations operations;
  for (int r = 0; r < 2; ++r) {
    streams_.push_back(*host_->gpu()->CreateStream());
    values_.emplace_back(static_cast<size_t>(kCount), -1.0f);
    graphs_.push_back(*host_->gpu()->Capture(streams_.back()));
    operations.push_back(Make(r, true, kShortTimeout));
  }
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(status, MatchesStatus(absl::StatusCode::kDeadlineExceeded, "launching"));
  }
  EXPECT_TRUE(nccl_->AbortsBecome(2));
  for (const auto& graph : graphs_) EXPECT_FALSE(graph->End().ok());
  ExpectUnusable();
}

}  // namespace
}  // namespace gyre
