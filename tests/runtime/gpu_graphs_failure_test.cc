// Reducers on GPUs by graphs, where something does not end well: ranks that cannot capture, captures that are spoilt,
// and graphs that do not get done.
#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/gpu_trainer.h"
#include "runtime/gpus_with_nccl.h"

namespace gyre {
namespace {

using support::GpuRank;
using support::GpuTrainer;
using support::IsOk;
using support::kCaptured;
using support::RunByGraphs;
using support::RunByNccl;
using support::SomeParameters;

TEST(GpuGraphsFailureTest, WhereOneRankCannotCaptureAllGoOnWithout) {
  const absl::Status ok, cannot = absl::InternalError("graphs are not for this GPU");
  for (const auto& [begin, end] : {std::pair(cannot, ok), std::pair(ok, cannot)}) {
    RunByGraphs(3, [&begin = begin, &end = end](GpuRank& rank) {
      GpuTrainer trainer(rank, SomeParameters());
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
      if (rank.rank.rank == rank.rank.size - 1) rank.gpu->FailCaptures(begin, end, 1);
      for (int64_t step = 1; step <= kCaptured + 5; ++step) {
        ASSERT_THAT(trainer.GiveAll(step), IsOk());
        ASSERT_THAT(trainer.reducer->Wait(), IsOk());
        for (size_t p = 0; p < trainer.size(); ++p) trainer.Expect(p, 1, {step});
      }
      EXPECT_EQ(rank.gpu->launched(), 0);
      trainer.Compare();
    });
  }
}

// After the trials: begun again as long as NCCL has not been given the call.
TEST(GpuGraphsFailureTest, ACaptureThatIsSpoiltAtItsBeginIsBegunAgain) {
  RunByGraphs(3, [](GpuRank& rank) {
    GpuTrainer trainer(rank, SomeParameters());
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
    int calls = 0;
    for (int64_t step = 1; step <= kCaptured + 3; ++step) {
      if (step == kCaptured && rank.rank.rank == rank.rank.size - 1) {
        rank.gpu->FailCaptures(absl::InternalError("spoilt"), absl::OkStatus(), 2, calls + 1);
      }
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      calls = summary->calls;
      for (size_t p = 0; p < trainer.size(); ++p) trainer.Expect(p, 1, {step});
    }
    EXPECT_EQ(rank.gpu->launched(), 3 * calls);
    trainer.Compare();
  });
}

// The same where NCCL has been given it, on all ranks: these go on without.
TEST(GpuGraphsFailureTest, ACaptureThatIsSpoiltAtItsEndIsDoneWithout) {
  RunByGraphs(3, [](GpuRank& rank) {
    GpuTrainer trainer(rank, SomeParameters());
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
    int calls = 0;
    for (int64_t step = 1; step <= kCaptured + 5; ++step) {
      if (step == kCaptured && rank.rank.rank == rank.rank.size - 1) {
        rank.gpu->FailCaptures(absl::OkStatus(), absl::InternalError("spoilt"), 1, calls + 1);
      }
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      calls = summary->calls;
      if (step == kCaptured) {
        EXPECT_EQ(summary->control_messages, 3);
        EXPECT_THAT(rank.gpu->SynchronizeAll(), IsOk());
      }
      for (size_t p = 0; p < trainer.size(); ++p) trainer.Expect(p, 1, {step});
    }
    EXPECT_EQ(rank.gpu->launched(), 0);
    trainer.Compare();
  });
}

TEST(GpuGraphsFailureTest, ARankThatCannotBeginItsCaptureAnyMoreEndsTheReducerOnAll) {
  RunByNccl({2}, 3, [](GpuRank& rank) {
    GpuTrainer trainer(rank, SomeParameters());
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
    absl::Status status;
    int calls = 0;
    for (int64_t step = 1; step <= kCaptured; ++step) {
      if (step == kCaptured && rank.rank.rank == 1) {
        rank.gpu->FailCaptures(absl::InternalError("spoilt"), absl::OkStatus(), 3, calls + 1);
      }
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      const auto summary = trainer.reducer->Wait();
      status = summary.status();
      if (step == kCaptured) break;
      ASSERT_THAT(summary, IsOk());
      calls = summary->calls;
    }
    EXPECT_THAT(status.message(), testing::HasSubstr("step 3, gradients \"p"));
    EXPECT_THAT(status.message(), testing::HasSubstr("spoilt"));
    EXPECT_THAT(rank.gpu->SynchronizeAll(), IsOk());  // nothing is captured any more
    trainer.reducer.reset();
  });
}

// Whatever of a capture fails: all go on without, or the reducer ends on all; it never hangs, nothing is wrong, and no
// capture stays open. What fails in the trials, the first of all this is, ends no reducer.
TEST(GpuGraphsFailureTest, ErrorsInTheMiddleOfACapture) {
  for (int after = 0; after < 22; ++after) {
    RunByGraphs(1, [after](GpuRank& rank) {
      GpuTrainer trainer(rank, SomeParameters());
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kAverage, .bucket_bytes = 2000, .graphs = true}), IsOk());
      if (rank.rank.rank == 0) rank.gpu->FailCaptured(after, absl::InternalError("fell off the bus"));
      absl::Status status;
      for (int64_t step = 1; step <= kCaptured + 3 && status.ok(); ++step) {
        ASSERT_THAT(trainer.GiveAll(step), IsOk());
        status = trainer.reducer->Wait().status();
        if (rank.rank.size == 3) continue;  // thirds are not exact
        for (size_t p = 0; p < trainer.size() && status.ok(); ++p) trainer.Expect(p, 1.0 / rank.rank.size, {step});
      }
      EXPECT_TRUE(status.ok() || (rank.rank.size > 1 && after > 0)) << status;
      if (after == 0) {
        EXPECT_EQ(rank.gpu->launched(), 0);
      }
      if (!status.ok()) {
        EXPECT_THAT(status.message(), testing::HasSubstr("step 3, gradients \"p"));
      }
      EXPECT_THAT(rank.gpu->SynchronizeAll(), IsOk());
      trainer.reducer.reset();
      if (status.ok()) trainer.Compare();
      // On all ranks alike.
      std::vector<float> failed = {status.ok() ? 0.0f : 1.0f};
      ASSERT_THAT(rank.world().AllReduce(failed), IsOk());
      EXPECT_EQ(failed[0], status.ok() ? 0.0f : static_cast<float>(rank.rank.size));
    });
  }
}

TEST(GpuGraphsFailureTest, AGpuThatFailsLaterEndsTheStep) {
  RunByGraphs(1, [](GpuRank& rank) {
    GpuTrainer trainer(rank, {{{1000}}});
    ASSERT_THAT(trainer.Start({.graphs = true}), IsOk());
    for (int64_t step = 1; step <= kCaptured + 2; ++step) {
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    }
    rank.Meet();
    if (rank.rank.rank == 0) rank.gpu->Fail(absl::InternalError("fell off the bus"));
    ASSERT_THAT(trainer.reducer->Ready(0), IsOk());
    absl::Status status = trainer.reducer->Wait().status();
    if (status.ok()) status = trainer.FirstFailure(kCaptured + 3);
    EXPECT_THAT(status.message(), testing::HasSubstr("fell off the bus"));
    rank.gpu->Fail(absl::OkStatus());
    trainer.reducer.reset();
  });
}

TEST(GpuGraphsFailureTest, AStreamThatTheProgramCapturesIsLeftAlone) {
  RunByGraphs(1, [](GpuRank& rank) {
    GpuTrainer trainer(rank, {{{1000}}});
    void* const programs = *rank.gpu->CreateStream();
    rank.gpu->LetProgramCapture(programs);  // all the time
    ASSERT_THAT(trainer.Start({.graphs = true}), IsOk());
    for (int64_t step = 1; step <= kCaptured + 2; ++step) {
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    }
    rank.Meet();
    const TensorView there(trainer.own(0).data, 1000, DType::kF32, rank.on(programs));
    ASSERT_THAT(rank.rank.rank == 0 ? trainer.reducer->Ready(0, there) : trainer.Give(0, kCaptured + 3, true), IsOk());
    absl::Status status = trainer.reducer->Wait().status();
    if (status.ok()) status = trainer.FirstFailure(kCaptured + 4);
    EXPECT_THAT(status.message(), testing::HasSubstr("being captured"));
    trainer.reducer.reset();
    rank.gpu->DestroyStream(programs);
  });
}

// What was launched is done all the same where the GPU gets to it, with one rank; NCCL's calls are aborted.
TEST(GpuGraphsFailureTest, TheEndOfAReducerWhoseGraphsAreUnderWay) {
  RunByGraphs(1, [](GpuRank& rank) {
    GpuTrainer trainer(rank, {{{1000}}, {{10}}});
    ASSERT_THAT(trainer.Start({.graphs = true}), IsOk());
    for (int64_t step = 1; step <= kCaptured; ++step) {
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    }
    rank.Meet();
    rank.gpu->Stall(true);
    rank.Meet();
    for (int64_t step = kCaptured + 1; step <= kCaptured + 3; ++step) {
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
      for (size_t p = 0; p < trainer.size() && rank.rank.size == 1; ++p) trainer.Expect(p, 1, {step});
    }
    trainer.reducer.reset();
    rank.Meet();
    rank.gpu->Stall(false);
    rank.Meet();
    trainer.Compare();
  });
}

}  // namespace
}  // namespace gyre
