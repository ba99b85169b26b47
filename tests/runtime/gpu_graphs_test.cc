// GradientReducer on GPUs by graphs: of one rank, and by NCCL, where a call is captured by all ranks or by none.
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/gpu_trainer.h"
#include "runtime/gpus_with_nccl.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::GpuRank;
using support::GpuTrainer;
using support::HostSizes;
using support::IsOk;
using support::kCaptured;
using support::MatchesStatus;
using support::Parameter;
using support::RunByGraphs;
using support::RunByNccl;
using support::RunOnGpus;
using support::SomeParameters;

TEST(GpuGraphsTest, StepsThatRepeatAreRight) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    RunByGraphs(seed, [](GpuRank& rank) {
      GpuTrainer trainer(rank, SomeParameters());
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
      for (int64_t step = 1; step <= kCaptured + 20; ++step) {
        ASSERT_THAT(trainer.GiveAll(step), IsOk());
        const auto summary = trainer.reducer->Wait();
        ASSERT_THAT(summary, IsOk());
        EXPECT_EQ(summary->control_messages, step == 2 ? 1 : step == kCaptured ? summary->calls + 1 : 0) << step;
        for (size_t p = 0; p < trainer.size(); ++p) trainer.Expect(p, 1, {step});
      }
      trainer.Compare();
    });
  }
}

TEST(GpuGraphsTest, AStepIsOneLaunchForEachCall) {
  RunOnGpus({1}, 1, [](GpuRank& rank) {
    int queued[2] = {};
    for (const bool graphs : {false, true}) {
      GpuTrainer trainer(rank, SomeParameters());
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = graphs}), IsOk());
      for (int64_t step = 1; step <= 6; ++step) {
        const int launched = rank.gpu->launched(), before = rank.gpu->queued();
        ASSERT_THAT(trainer.GiveAll(step), IsOk());
        const auto summary = trainer.reducer->Wait();
        ASSERT_THAT(summary, IsOk());
        EXPECT_EQ(rank.gpu->launched() - launched, graphs && step > kCaptured ? summary->calls : 0);
        queued[graphs ? 1 : 0] = rank.gpu->queued() - before;
        for (size_t p = 0; p < trainer.size(); ++p) trainer.Expect(p, 1, {step});
      }
      trainer.Compare();
    }
    EXPECT_LT(queued[1], queued[0]);
  });
}

TEST(GpuGraphsTest, NcclIsGivenNothingAnew) {
  RunByNccl({2}, 1, [](GpuRank& rank) {
    GpuTrainer trainer(rank, SomeParameters());
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
    int launches = 0, calls = 0;
    for (int64_t step = 1; step <= kCaptured + 10; ++step) {
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      calls = summary->calls;
      rank.Meet();
      if (step == kCaptured) launches = rank.nccl->launches;
    }
    EXPECT_EQ(rank.nccl->launches, launches);
    EXPECT_EQ(rank.nccl->replays, 10 * 2 * calls);
  });
}

// What ranks do differs: one gives new memory in every step, another changes between two places, a third goes home now
// and then; some gradients are missing on all. Others launch all the same.
TEST(GpuGraphsTest, PlacesMayChangeAtAnyTimeOnAnyRank) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    RunByGraphs(seed, [seed](GpuRank& rank) {
      GpuTrainer trainer(rank, SomeParameters());
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
      std::vector<GpuRank::Memory> others, fresh;
      for (size_t p = 0; p < trainer.size(); ++p) {
        others.push_back(
            rank.Tensor(trainer.parameter(p).dtype, trainer.parameter(p).count(), trainer.device(p).stream));
      }
      std::minstd_rand random(seed * 10 + static_cast<unsigned>(rank.rank.rank)), shared(seed);
      for (int64_t step = 1; step <= kCaptured + 25; ++step) {
        std::vector<bool> missed;
        for (size_t p = 0; p < trainer.size(); ++p) {
          const bool missing = shared() % 9 == 0;
          const auto way = step % 5 == 0 ? 0 : random() % 12;  // most often as always
          const Parameter& parameter = trainer.parameter(p);
          if (missing) {
            ASSERT_THAT(trainer.reducer->Missing(static_cast<int>(p)), IsOk());
          } else if (way == 1) {
            fresh.push_back(rank.Tensor(parameter.dtype, parameter.count(), trainer.device(p + 1).stream));
            ASSERT_THAT(trainer.GiveIn(p, step, fresh.back().view), IsOk());
          } else if (way == 2) {
            ASSERT_THAT(trainer.GiveIn(p, step, others[p].view), IsOk());
          } else {
            ASSERT_THAT(trainer.Give(p, step, way != 3), IsOk());
          }
          missed.push_back(missing);
        }
        ASSERT_THAT(trainer.reducer->Wait(), IsOk());
        for (size_t p = 0; p < trainer.size(); ++p) {
          trainer.Expect(p, 1, missed[p] ? std::vector<int64_t>() : std::vector<int64_t>{step});
        }
      }
      trainer.Compare();
    });
  }
}

TEST(GpuGraphsTest, GradientsAreConverted) {
  RunByGraphs(2, [](GpuRank& rank) {
    GpuTrainer trainer(rank, {{{700}}, {{41}}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .graphs = true}), IsOk());
    auto narrow = rank.Tensor(DType::kBF16, 700, rank.stream);
    for (int64_t step = 1; step <= kCaptured + 8; ++step) {
      // As bf16 from the beginning on one rank, now and then on the others.
      const bool converted = rank.rank.rank == 0 || step % 3 == 0;
      ASSERT_THAT(converted ? trainer.GiveIn(0, step, narrow.view) : trainer.Give(0, step, step % 2 == 0), IsOk());
      ASSERT_THAT(trainer.Give(1, step, true), IsOk());
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
      for (size_t p = 0; p < 2; ++p) trainer.Expect(p, 1, {step});
    }
    trainer.Compare();
  });
}

TEST(GpuGraphsTest, MicroBatchesAddUp) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    RunByGraphs(seed, [](GpuRank& rank) {
      GpuTrainer trainer(rank, SomeParameters());
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .accumulate = 2, .bucket_bytes = 2000, .graphs = true}), IsOk());
      for (int64_t step = 1; step <= kCaptured + 6; ++step) {
        for (const int64_t batch : {2 * step, 2 * step + 1}) {
          for (size_t p = 0; p < trainer.size(); ++p) {
            const bool in_own = p % 3 == 0 || (p % 3 == 1 && batch % 4 == 0);
            ASSERT_THAT(trainer.Give(p, batch, in_own), IsOk());
          }
          ASSERT_THAT(trainer.reducer->Wait(), IsOk());
        }
        for (size_t p = 0; p < trainer.size(); ++p) trainer.Expect(p, 1, {2 * step, 2 * step + 1});
      }
      trainer.Compare();
    });
  }
}

TEST(GpuGraphsTest, NormsAreClippedAndBadStepsSkipped) {
  RunByGraphs(8, [](GpuRank& rank) {
    GpuTrainer trainer(rank, {{{64}}, {{36}}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kAverage, .max_norm = 5.0, .skip_non_finite = true, .graphs = true}),
                IsOk());
    std::vector<float> threes(64, 3.0f), more(36), got(64), other(36);
    for (int64_t step = 1; step <= kCaptured + 6; ++step) {
      const bool finite = step % 4 != 0;
      more.assign(36, 3.0f);
      if (!finite && rank.rank.rank == rank.rank.size - 1) more[7] = std::numeric_limits<float>::infinity();
      rank.Put(trainer.own(0), threes.data());
      ASSERT_THAT(trainer.reducer->Ready(0, trainer.own(0)), IsOk());
      rank.Put(trainer.home(1), more.data());
      ASSERT_THAT(trainer.reducer->Ready(1), IsOk());
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->skipped, !finite) << step;
      rank.Get(trainer.own(0), got.data());
      rank.Get(trainer.home(1), other.data());
      rank.Settle(trainer.own(0).device.stream);
      rank.Settle(trainer.home(1).device.stream);
      if (!finite) continue;
      EXPECT_DOUBLE_EQ(*summary->norm, 30.0);  // of 100 threes
      EXPECT_THAT(got, testing::Each(testing::FloatEq(0.5f)));
      EXPECT_THAT(other, testing::Each(testing::FloatEq(0.5f)));
    }
  });
}

// NCCL has a warning for who launches graphs of several communicators.
TEST(GpuGraphsTest, OneOfSeveralReducersHasThemAtATime) {
  RunByGraphs(4, [](GpuRank& rank) {
    GpuTrainer one(rank, SomeParameters()), other(rank, {{{900}}, {{700}}});
    ASSERT_THAT(one.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
    ASSERT_THAT(other.Start({.op = ReduceOp::kAverage, .graphs = true}), IsOk());
    const double part = 1.0 / rank.rank.size;
    // Graphs that a step of the one, and then of the other, has launched.
    const auto step_of = [&rank](GpuTrainer& trainer, int64_t step, int control_messages) {
      const int before = rank.gpu->launched();
      EXPECT_THAT(trainer.GiveAll(step), IsOk());
      const auto summary = trainer.reducer->Wait();
      EXPECT_THAT(summary, IsOk());
      if (summary.ok() && control_messages >= 0) {
        EXPECT_EQ(summary->control_messages, control_messages) << step;
      }
      return rank.gpu->launched() - before;
    };
    for (int64_t step = 1; step <= kCaptured + 4; ++step) {
      EXPECT_EQ(step_of(one, step, -1) > 0, step > kCaptured) << step;
      EXPECT_EQ(step_of(other, step, step == 2 || step == kCaptured ? 1 : 0), 0) << step;
      for (size_t p = 0; p < one.size(); ++p) one.Expect(p, 1, {step});
      if (rank.rank.size != 3) {  // thirds are not exact
        for (size_t p = 0; p < other.size(); ++p) other.Expect(p, part, {step});
      }
    }
    one.Compare();
    one.reducer.reset();
    ASSERT_THAT(one.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000, .graphs = true}), IsOk());
    for (int64_t step = 1; step <= kCaptured + 4; ++step) {  // none has them meanwhile
      EXPECT_EQ(step_of(one, step, -1) > 0, step > kCaptured) << step;
      EXPECT_EQ(step_of(other, step, 0), 0) << step;  // it has tried
      for (size_t p = 0; p < one.size(); ++p) one.Expect(p, 1, {step});
    }
    one.Compare();
    other.Compare();
  });
}

TEST(GpuGraphsTest, WhereTheyAreNotAskedForThereAreNone) {
  RunByGraphs(1, [](GpuRank& rank) {
    GpuTrainer trainer(rank, {{{1000}}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum}), IsOk());
    for (int64_t step = 1; step <= kCaptured + 2; ++step) {
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->control_messages, step == 2 ? 1 : 0);
      trainer.Expect(0, 1, {step});
    }
    EXPECT_EQ(rank.gpu->launched(), 0);
    trainer.Compare();
    if (rank.rank.size == 1) return;
    GpuTrainer other(rank, {{{1000}}});
    EXPECT_THAT(other.Start({.graphs = rank.rank.rank == 0}), MatchesStatus(StatusCode::kInvalidArgument, "graphs"));
  });
}

}  // namespace
}  // namespace gyre
