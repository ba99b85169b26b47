// Reducers on GPUs, where some of what they do goes by graphs, or none.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/gpu_trainer.h"
#include "runtime/gpus_with_nccl.h"

namespace gyre {
namespace {

using support::GpuRank;
using support::GpuTrainer;
using support::HostSizes;
using support::IsOk;
using support::kCaptured;
using support::Owner;
using support::RunByGraphs;
using support::RunByNccl;
using support::RunOnGpus;

// Staged, by IPC, and hierarchically: nothing is captured, and nothing is said about it.
TEST(GpuGraphLimitsTest, WhatTheHostHasAPartInIsNotCaptured) {
  const std::vector<std::pair<HostSizes, Owner>> worlds = {
      {{2}, Owner::kRank}, {{2}, Owner::kHost}, {{2, 1}, Owner::kHost}};
  for (const auto& [hosts, owner] : worlds) {
    SCOPED_TRACE(absl::StrCat(hosts.size(), " hosts, ", owner == Owner::kHost ? "a GPU each" : "a GPU a rank"));
    RunOnGpus(
        hosts, 1,
        [](GpuRank& rank) {
          GpuTrainer trainer(rank, {{{1000}}});
          ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .graphs = true}), IsOk());
          for (int64_t step = 1; step <= kCaptured + 2; ++step) {
            ASSERT_THAT(trainer.GiveAll(step), IsOk());
            const auto summary = trainer.reducer->Wait();
            ASSERT_THAT(summary, IsOk());
            EXPECT_EQ(summary->control_messages, step == 2 ? 1 : 0);
            trainer.Expect(0, 1, {step});
          }
          EXPECT_EQ(rank.gpu->launched(), 0);
          trainer.Compare();
        },
        owner);
  }
}

// Small integers, which halves hold exactly. What goes dense is not captured either.
TEST(GpuGraphLimitsTest, ReducersThatCompressCaptureNothing) {
  RunByGraphs(1, [](GpuRank& rank) {
    GpuTrainer trainer(rank, {{{20, 71}}, {{30, 40}}, {{9}}, {{1000}, DType::kBF16}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum,
                               .bucket_bytes = 2000,
                               .graphs = true,
                               .compression = Fp16{},
                               .always_compress = true}),
                IsOk());
    for (int64_t step = 1; step <= kCaptured + 5; ++step) {
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_GT(summary->compressed_calls, 0);
      EXPECT_LT(summary->compressed_calls, summary->calls);
      EXPECT_EQ(summary->control_messages, step == 2 ? 1 : 0);
      for (size_t p = 0; p < trainer.size(); ++p) trainer.Expect(p, 1, {step});
    }
    EXPECT_EQ(rank.gpu->launched(), 0);
    trainer.Compare();
  });
}

// A table of rows, and a dense gradient in memory of the program's: the one by way of the host, the other by a graph.
TEST(GpuGraphLimitsTest, RowGradientsGoBesideGraphs) {
  constexpr int64_t kRows = 10, kWidth = 4, kDense = 100, kSteps = kCaptured + 5;
  RunByGraphs(2, [](GpuRank& rank) {
    auto reducer = *GradientReducer::Create(rank.world(), {.op = ReduceOp::kSum, .graphs = true});
    const std::vector<int64_t> table = {kRows, kWidth}, dense = {kDense};
    ASSERT_THAT(reducer->RegisterRows("embedding", table, DType::kF32, rank.device()), IsOk());
    ASSERT_THAT(reducer->Register("layer", dense, DType::kF32, rank.device()), IsOk());
    ASSERT_THAT(reducer->Start(), IsOk());
    auto values = rank.Tensor(DType::kF32, 2 * kWidth, rank.stream);
    auto layer = rank.Tensor(DType::kF32, kDense, rank.stream),
         all = rank.Tensor(DType::kF32, kRows * kWidth, rank.stream);
    for (int64_t step = 1; step <= kSteps; ++step) {
      // Row step of all ranks, and another of each.
      const auto other = [step](int r) { return (step + 1 + r) % kRows; };
      const std::vector<int64_t> rows = {step % kRows, other(rank.rank.rank)};
      const std::vector<float> given(2 * kWidth, static_cast<float>(rank.rank.rank + 1));
      rank.Put(values.view, given.data());
      ASSERT_THAT(reducer->ReadyRows(0, rows, values.view), IsOk());
      const std::vector<float> of_layer(kDense, static_cast<float>(step + rank.rank.rank));
      rank.Put(layer.view, of_layer.data());
      ASSERT_THAT(reducer->Ready(1, layer.view), IsOk());
      ASSERT_THAT(reducer->Wait(), IsOk());
      ASSERT_THAT(reducer->ScatterRows(0, all.view), IsOk());
      std::vector<float> got(kRows * kWidth), got_layer(kDense), expected(kRows * kWidth);
      rank.Get(all.view, got.data());
      rank.Get(layer.view, got_layer.data());
      rank.Settle(rank.stream);
      float sum = 0;
      for (int r = 0; r < rank.rank.size; ++r) {
        sum += static_cast<float>(step + r);
        for (const int64_t row : {step % kRows, other(r)}) {
          for (int64_t i = 0; i < kWidth; ++i)
            expected[static_cast<size_t>(row * kWidth + i)] += static_cast<float>(r + 1);
        }
      }
      EXPECT_EQ(got, expected) << "step " << step;
      EXPECT_THAT(got_layer, testing::Each(sum)) << "step " << step;
    }
    EXPECT_EQ(rank.gpu->launched(), kSteps - kCaptured);
    reducer.reset();
  });
}

// NCCL's error has its 0.3 s to be named while the next step comes with a gradient in another place, of which the
// graph, discarded meanwhile, cannot be told.
TEST(GpuGraphLimitsTest, AStepThatFindsItsGraphDiscardedSaysWhy) {
  RunByNccl({2}, 1, [](GpuRank& rank) {
    GpuTrainer trainer(rank, {{{1000}}});
    auto other = rank.Tensor(DType::kF32, 1000, rank.stream);
    ASSERT_THAT(trainer.Start({.graphs = true}), IsOk());
    for (int64_t step = 1; step <= kCaptured + 1; ++step) {
      ASSERT_THAT(trainer.GiveAll(step), IsOk());
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    }
    rank.Meet();
    rank.gpu->Stall(true);
    rank.Meet();
    ASSERT_THAT(trainer.GiveAll(kCaptured + 2), IsOk());
    ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    rank.Meet();
    if (rank.rank.rank == 1) {
      rank.nccl->Break(1, absl::UnavailableError("the cable was cut"));
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (rank.nccl->aborted == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      EXPECT_GE(rank.nccl->aborted, 1);
    }
    ASSERT_THAT(trainer.GiveIn(0, kCaptured + 3, other.view), IsOk());
    absl::Status status = trainer.reducer->Wait().status();
    if (status.ok()) status = trainer.FirstFailure(kCaptured + 4);
    EXPECT_THAT(status.message(), testing::HasSubstr("the cable was cut"));
    rank.Meet();
    rank.gpu->Stall(false);
    rank.Meet();
    trainer.reducer.reset();
  });
}

}  // namespace
}  // namespace gyre
