// GradientReducer on GPUs: no step here waits for the GPU before what it has queued is compared, at the end.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/gpu_trainer.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::GpuRank;
using support::HostSizes;
using support::IsOk;
using support::MatchesStatus;
using support::RunOnGpus;
using support::SomeParameters;
using support::TimeoutOf;
using Trainer = support::GpuTrainer;
using support::ValueOf;

TEST(GpuReducerTest, ResultsAreSumsWhereverGradientsAre) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    for (const HostSizes& hosts : {HostSizes{2}, HostSizes{1, 1}, HostSizes{3}}) {
      RunOnGpus(hosts, seed, [](GpuRank& rank) {
        Trainer trainer(rank, SomeParameters());
        ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000}), IsOk());
        for (int64_t step = 1; step <= 6; ++step) {
          for (size_t p = trainer.size(); p-- > 0;) {
            // Some at home, some in one place, some now here and now there.
            const bool in_own = p % 3 == 0 || (p % 3 == 1 && step % 2 == 0);
            ASSERT_THAT(trainer.Give(p, step, in_own), IsOk());
          }
          const auto summary = trainer.reducer->Wait();
          ASSERT_THAT(summary, IsOk());
          EXPECT_EQ(summary->control_messages, step == 2 ? 1 : 0);
          for (size_t p = 0; p < trainer.size(); ++p) trainer.Expect(p, 1, {step});
        }
        trainer.Compare();
      });
    }
  }
}

TEST(GpuReducerTest, GradientsAreConverted) {
  RunOnGpus({2}, 5, [](GpuRank& rank) {
    Trainer trainer(rank, {{{700}}, {{41}, DType::kBF16}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum}), IsOk());
    auto narrow = rank.Tensor(DType::kBF16, 700, rank.stream);
    auto wide = rank.Tensor(DType::kF32, 41, rank.stream);
    std::vector<BFloat16> in(700), out(700);
    std::vector<float> other_in(41), other_out(41);
    for (int64_t i = 0; i < 700; ++i)
      in[static_cast<size_t>(i)] = BFloat16(static_cast<float>(ValueOf(rank.rank, 0, i, 1)));
    for (int64_t i = 0; i < 41; ++i) other_in[static_cast<size_t>(i)] = static_cast<float>(ValueOf(rank.rank, 1, i, 1));
    for (int step = 0; step < 3; ++step) {
      rank.Put(narrow.view, in.data());
      ASSERT_THAT(trainer.reducer->Ready(0, narrow.view), IsOk());
      rank.Put(wide.view, other_in.data());
      ASSERT_THAT(trainer.reducer->Ready(1, wide.view), IsOk());
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
      rank.Get(narrow.view, out.data());
      rank.Get(wide.view, other_out.data());
      rank.Settle(rank.stream);
      for (int64_t i = 0; i < 700; ++i) {
        ASSERT_EQ(static_cast<float>(out[static_cast<size_t>(i)]), ValueOf(0, 0, i, 1) + ValueOf(1, 0, i, 1));
      }
      for (int64_t i = 0; i < 41; ++i) {
        ASSERT_EQ(other_out[static_cast<size_t>(i)], ValueOf(0, 1, i, 1) + ValueOf(1, 1, i, 1));
      }
    }
  });
}

TEST(GpuReducerTest, MicroBatchesAddUp) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    RunOnGpus({2}, seed, [](GpuRank& rank) {
      Trainer trainer(rank, SomeParameters());
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kAverage, .accumulate = 2}), IsOk());
      for (int64_t step = 1; step <= 3; ++step) {
        for (const int64_t batch : {2 * step, 2 * step + 1}) {
          for (size_t p = 0; p < trainer.size(); ++p) {
            const bool in_own = p % 3 == 0 || (p % 3 == 1 && (batch + step) % 2 == 0);
            ASSERT_THAT(trainer.Give(p, batch, in_own), IsOk());
          }
          const auto summary = trainer.reducer->Wait();
          ASSERT_THAT(summary, IsOk());
          EXPECT_EQ(summary->reduced, batch % 2 == 1);
        }
        for (size_t p = 0; p < trainer.size(); ++p) trainer.Expect(p, 0.25, {2 * step, 2 * step + 1});
      }
      trainer.Compare();
    });
  }
}

TEST(GpuReducerTest, MissingOnesAreZeros) {
  RunOnGpus({2}, 2, [](GpuRank& rank) {
    Trainer trainer(rank, {{{100}}, {{50}}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum}), IsOk());
    ASSERT_THAT(trainer.Give(0, 1, false), IsOk());
    if (rank.rank == 0) {
      ASSERT_THAT(trainer.Give(1, 1, false), IsOk());
    } else {
      std::vector<float> before(50, 7.0f);
      rank.Put(trainer.home(1), before.data());
      rank.Settle(trainer.device(1).stream);
      ASSERT_THAT(trainer.reducer->Missing(1), IsOk());
    }
    ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    trainer.Expect(0, 1, {1});
    std::vector<float> got(50);
    rank.Get(trainer.home(1), got.data());
    trainer.Compare();
    for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], ValueOf(0, 1, i, 1));
  });
}

// A home is written where the step before has yet to read its results, or to put them there: behind that, whatever
// streams gradients were given on.
TEST(GpuReducerTest, HomesAreWrittenAfterTheStepBefore) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    RunOnGpus({2}, seed, [seed](GpuRank& rank) {
      Trainer trainer(rank, {{{900}}, {{700}}, {{1100}}});
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 2000}), IsOk());
      for (int64_t step = 1; step <= 9; ++step) {
        for (size_t p = 0; p < trainer.size(); ++p) {
          const auto turn = (static_cast<size_t>(step) * (1 + seed % 2) + p) % 3;
          if (turn == 1) {
            ASSERT_THAT(trainer.reducer->Missing(static_cast<int>(p)), IsOk());
          } else {
            ASSERT_THAT(trainer.Give(p, step, turn == 0), IsOk());
          }
        }
        ASSERT_THAT(trainer.reducer->Wait(), IsOk());
        for (size_t p = 0; p < trainer.size(); ++p) {
          const bool missing = (static_cast<size_t>(step) * (1 + seed % 2) + p) % 3 == 1;
          trainer.Expect(p, 1, missing ? std::vector<int64_t>() : std::vector<int64_t>{step});
        }
      }
      trainer.Compare();
    });
  }
}

// The others have their results by then: they learn of it in the next step.
TEST(GpuReducerTest, AStepThatOneRankCannotFinishIsTheLastOfAll) {
  for (const HostSizes& hosts : {HostSizes{2}, HostSizes{1, 1}}) {
    RunOnGpus(hosts, 1, [](GpuRank& rank) {
      Trainer trainer(rank, {{{1000}}});
      ASSERT_THAT(trainer.Start({.max_norm = 1.0}), IsOk());
      if (rank.rank == 1) rank.gpu->FailSquares(absl::InternalError("fell off the bus"));
      absl::Status status;
      for (int64_t step = 1; step <= 2 && status.ok(); ++step) {
        ASSERT_THAT(trainer.Give(0, step, false), IsOk());
        status = trainer.reducer->Wait().status();
      }
      EXPECT_THAT(status.message(), testing::HasSubstr("fell off the bus"));
      const std::string who = rank.rank == 0 ? "rank 1 could not finish its step" : "";
      EXPECT_THAT(status.message(), testing::HasSubstr(who));
      rank.gpu->Free(nullptr);
    });
  }
}

TEST(GpuReducerTest, NormsAreClippedAndBadStepsSkipped) {
  for (const HostSizes& hosts : {HostSizes{2}, HostSizes{1, 1}}) {
    RunOnGpus(hosts, 8, [](GpuRank& rank) {
      Trainer trainer(rank, {{{64}}, {{36}}});
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .max_norm = 5.0, .skip_non_finite = true}), IsOk());
      std::vector<float> threes(64, 1.5f), bad(36, 1.5f), got(64), other(36);
      for (const bool finite : {true, false, true}) {
        bad[7] = finite || rank.rank == 0 ? 1.5f : std::numeric_limits<float>::infinity();
        rank.Put(trainer.own(0), threes.data());
        ASSERT_THAT(trainer.reducer->Ready(0, trainer.own(0)), IsOk());
        rank.Put(trainer.home(1), bad.data());
        ASSERT_THAT(trainer.reducer->Ready(1), IsOk());
        const auto summary = trainer.reducer->Wait();
        ASSERT_THAT(summary, IsOk());
        EXPECT_EQ(summary->skipped, !finite);
        rank.Get(trainer.own(0), got.data());
        rank.Get(trainer.home(1), other.data());
        rank.Settle(rank.stream);
        rank.Settle(trainer.device(1).stream);
        if (!finite) continue;
        EXPECT_DOUBLE_EQ(*summary->norm, 30.0);  // of 100 threes
        for (const float value : got) ASSERT_FLOAT_EQ(value, 0.5f);
        for (const float value : other) ASSERT_FLOAT_EQ(value, 0.5f);
      }
    });
  }
}

TEST(GpuReducerTest, WhatIsElsewhereIsRefused) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto reducer = *GradientReducer::Create(rank.world());
    const std::vector<int64_t> shape = {10};
    ASSERT_THAT(reducer->Register("a", shape, DType::kF32, rank.device()), IsOk());
    EXPECT_THAT(reducer->Register("b", shape),
                MatchesStatus(StatusCode::kInvalidArgument, "gradient \"b\" is on the host, those before it on GPU 0"));
    EXPECT_THAT(reducer->Register("b", shape, DType::kF32, rank.on(reinterpret_cast<void*>(uintptr_t{2}))),
                MatchesStatus(StatusCode::kInvalidArgument, "cudaStreamPerThread"));
    EXPECT_THAT(reducer->Register("b", shape, DType::kF32, {.gpu = -2}),
                MatchesStatus(StatusCode::kInvalidArgument, "gradient \"b\" is on GPU -2, which cannot be"));
    EXPECT_THAT(reducer->RegisterRows("c", shape), MatchesStatus(StatusCode::kInvalidArgument, "\"c\" is on the host"));
    ASSERT_THAT(reducer->Register("d", shape, DType::kF64, rank.device()), IsOk());
    ASSERT_THAT(reducer->Start(), IsOk());
    std::vector<float> host(10);
    EXPECT_THAT(reducer->Ready(0, host), MatchesStatus(StatusCode::kInvalidArgument, "memory of the host"));
    EXPECT_THAT(reducer->Ready(1, TensorView(host.data(), 10, DType::kF32, rank.device())),
                MatchesStatus(StatusCode::kInvalidArgument, "f32 is not converted to f64"));

    auto mixed = *GradientReducer::Create(rank.world());
    ASSERT_THAT(mixed->Register("a", shape, DType::kF32, rank.rank == 0 ? rank.device() : Device()), IsOk());
    EXPECT_THAT(mixed->Start(), MatchesStatus(StatusCode::kInvalidArgument, "on a GPU"));

    auto on_host = *GradientReducer::Create(rank.world());
    ASSERT_THAT(on_host->Register("a", shape), IsOk());
    ASSERT_THAT(on_host->Start(), IsOk());
    EXPECT_THAT(on_host->Ready(0, TensorView(host.data(), 10, DType::kF32, rank.device())),
                MatchesStatus(StatusCode::kInvalidArgument, "registered on the host"));
  });
}

TEST(GpuReducerTest, AGpuThatHangsEndsTheStep) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    Trainer trainer(rank, {{{1000}}});
    rank.Meet();
    ASSERT_THAT(trainer.Start({.timeout = TimeoutOf(rank.rank == 1)}), IsOk());
    ASSERT_THAT(trainer.Give(0, 1, true), IsOk());
    ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    rank.Meet();
    rank.gpu->Stall(rank.rank == 1);
    ASSERT_THAT(trainer.Give(0, 2, true), IsOk());  // a second time, by a table
    EXPECT_THAT(trainer.reducer->Wait(), MatchesStatus(StatusCode::kDeadlineExceeded, "GPU 0 of rank 1"));
    trainer.reducer.reset();
    EXPECT_EQ(rank.gpu->blocked(), 0);
    rank.gpu->Stall(false);
    rank.gpu->Free(nullptr);
  });
}

// The results of one bucket are on their way to memory of the program's own when the other one's gradient does not
// come; the program goes on with that memory.
TEST(GpuReducerTest, WhatAFailedStepHasQueuedComesBeforeWhatTheProgramDoesNext) {
  for (const Compression& compression : {Compression(NoCompression{}), Compression(Int8{})}) {
    RunOnGpus({2}, 8, [&](GpuRank& rank) {
      const std::vector<int64_t> shape = {41, 53};
      const int64_t count = shape[0] * shape[1];
      rank.Meet();
      auto created = GradientReducer::Create(rank.world(), {.bucket_bytes = 1000,
                                                            .compression = compression,
                                                            .always_compress = true,
                                                            .timeout = TimeoutOf(rank.rank == 1)});
      ASSERT_THAT(created, IsOk());
      const auto reducer = *std::move(created);
      for (const char* const name : {"second", "first"}) {  // the last to be registered is the first to be reduced
        ASSERT_THAT(reducer->Register(name, shape, DType::kF32, rank.device()), IsOk());
      }
      ASSERT_THAT(reducer->Start(), IsOk());
      const auto own = rank.Tensor(DType::kF32, count, rank.stream);
      std::vector<float> values(static_cast<size_t>(count), 1.0f);
      rank.Put(own.view, values.data());
      rank.Meet();
      ASSERT_THAT(reducer->Ready(1, own.view), IsOk());
      EXPECT_THAT(reducer->Wait().status().message(), testing::HasSubstr("gradients not ready: \"second\""));
      ASSERT_THAT(rank.gpu->Zero(own.view.data, own.view.bytes(), rank.stream), IsOk());
      rank.Settle(rank.stream);
      rank.gpu->Free(nullptr);  // does all that is queued
      rank.Get(own.view, values.data());
      rank.Settle(rank.stream);
      EXPECT_EQ(std::ranges::count(values, 0.0f), count);
    });
  }
}

TEST(GpuReducerTest, AGpuThatFailsEndsTheStepOnAllRanks) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    Trainer trainer(rank, {{{1000}}});
    ASSERT_THAT(trainer.Start({}), IsOk());
    rank.Meet();
    if (rank.rank == 1) rank.gpu->Fail(absl::InternalError("fell off the bus"));
    ASSERT_THAT(trainer.reducer->Ready(0), IsOk());
    EXPECT_THAT(trainer.reducer->Wait().status().message(), testing::HasSubstr("fell off the bus"));
    rank.gpu->Fail(absl::OkStatus());
    rank.gpu->Free(nullptr);
  });
}

}  // namespace
}  // namespace gyre
