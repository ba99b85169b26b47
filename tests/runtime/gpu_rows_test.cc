// Row gradients on GPUs, which do what is queued late.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gyre/distributed_optimizer.h"
#include "runtime/gpu_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::GpuRank;
using support::HostSizes;
using support::IsOk;
using support::MatchesStatus;
using support::RunOnGpus;
using support::TimeoutOf;

constexpr int64_t kRows = 40;
constexpr int64_t kWidths[] = {3, 10};

// Rank 1 has none in every second step; others have duplicates, out of order; in step 3 all have all rows.
std::vector<int64_t> RowsOf(int rank, int64_t step) {
  std::vector<int64_t> rows;
  if (rank == 1 && step % 2 == 1 && step != 3) return rows;
  const int64_t count = step == 3 ? kRows : 5 + rank;
  for (int64_t i = count - 1; i >= 0; --i) rows.push_back(step == 3 ? i : (i * i + 3 * rank + step) % 11);
  return rows;
}

float RowValueOf(int rank, size_t table, int64_t i, int64_t step) {
  return static_cast<float>((i * 7 + rank * 5 + static_cast<int64_t>(table) * 3 + step) % 9 - 4);
}

// The sum over ranks and steps of what they gave, of all elements.
std::vector<float> DenseSum(int ranks, size_t table, const std::vector<int64_t>& steps) {
  const int64_t width = kWidths[table];
  std::vector<float> sum(static_cast<size_t>(kRows * width));
  for (const int64_t step : steps) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int64_t> rows = RowsOf(rank, step);
      for (int64_t i = 0; i < std::ssize(rows) * width; ++i) {
        sum[static_cast<size_t>(rows[static_cast<size_t>(i / width)] * width + i % width)] +=
            RowValueOf(rank, table, i, step);
      }
    }
  }
  return sum;
}

// The rows that any rank gave in these steps, in rising order.
std::vector<int64_t> AllRows(int ranks, const std::vector<int64_t>& steps) {
  std::vector<int64_t> all;
  for (const int64_t step : steps) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int64_t> rows = RowsOf(rank, step);
      all.insert(all.end(), rows.begin(), rows.end());
    }
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

// Two tables, of f32 and bf16, and a dense gradient. Each table has a stream that its results are read on; its values
// are given on the other's.
class Tables {
 public:
  explicit Tables(GpuRank& rank) : rank_(rank) {
    other_ = *rank_.gpu->CreateStream();
    for (size_t table = 0; table < 2; ++table) {
      const int64_t count = kRows * kWidths[table];
      values_.push_back(rank_.Tensor(DType::kF32, count, on(table + 1).stream));
      dense_.push_back(rank_.Tensor(DType::kF32, count, on(table + 1).stream));
    }
  }
  ~Tables() {
    reducer.reset();
    values_.clear();
    dense_.clear();
    rank_.gpu->DestroyStream(other_);
  }
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  absl::Status Start(const ReducerOptions& options) {
    auto created = GradientReducer::Create(rank_.world(), options);
    if (!created.ok()) return created.status();
    reducer = *std::move(created);
    index_ = {0, 0};
    for (const size_t table : rank_.rank.rank % 2 == 0 ? std::vector<size_t>{0, 1} : std::vector<size_t>{1, 0}) {
      const std::vector<int64_t> shape = {kRows, kWidths[table]};
      const DType dtype = table == 0 ? DType::kF32 : DType::kBF16;
      const auto added = reducer->RegisterRows(table == 0 ? "embedding" : "words", shape, dtype, on(table));
      if (!added.ok()) return added.status();
      index_[table] = *added;
    }
    const std::vector<int64_t> shape = {100};
    const auto added = reducer->Register("layer", shape, DType::kF32, on(0));
    if (!added.ok()) return added.status();
    layer_ = *added;
    return reducer->Start();
  }

  // What is given is written over at once, behind that.
  absl::Status Give(size_t table, int64_t step, std::optional<float> all = std::nullopt) {
    const std::vector<int64_t> rows = RowsOf(rank_.rank, step);
    std::vector<float>& values = NewValues(std::ssize(rows) * kWidths[table]);
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      values[static_cast<size_t>(i)] = all.value_or(RowValueOf(rank_.rank, table, i, step));
    }
    const TensorView given = values_[table].view.Slice(0, std::ssize(values));
    rank_.Put(given, values.data());
    const absl::Status status = reducer->ReadyRows(index_[table], rows, given);
    std::vector<float>& spoilt = NewValues(given.count);
    std::ranges::fill(spoilt, 1e30f);
    rank_.Put(given, spoilt.data());
    return status;
  }
  absl::Status GiveLayer(float value) {
    std::vector<float>& values = NewValues(100);
    std::ranges::fill(values, value);
    rank_.Put(reducer->gradient(layer_), values.data());
    return reducer->Ready(layer_);
  }
  absl::Status GiveAll(int64_t step) {
    absl::Status status = Give(0, step);
    status.Update(GiveLayer(1));
    status.Update(Give(1, step));
    return status;
  }

  // The result, row by row and as a dense tensor on the other stream.
  void Expect(size_t table, const std::vector<int64_t>& steps, float scale) {
    const RowsView result = reducer->result_rows(index_[table]);
    const std::vector<int64_t> rows = AllRows(rank_.rank.size, steps);
    ASSERT_TRUE(std::ranges::equal(result.rows, rows));
    ASSERT_EQ(result.values.count, std::ssize(rows) * kWidths[table]);
    EXPECT_EQ(result.values.device, on(table));
    std::vector<float> dense = DenseSum(rank_.rank.size, table, steps);
    for (float& value : dense) value *= scale;
    ASSERT_THAT(reducer->ScatterRows(index_[table], dense_[table].view), IsOk());
    std::vector<float>& got = NewValues(std::ssize(dense));
    rank_.Get(dense_[table].view, got.data());
    rank_.Settle(on(table + 1).stream);
    EXPECT_EQ(got, dense) << "table " << table << ", step " << steps.back();
    if (table == 1) return;  // of another dtype
    std::vector<float>& values = NewValues(result.values.count);
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    EXPECT_THAT(rank_.gpu->Copy(values.data(), result.values.data, bytes, result.values.device.stream), IsOk());
    rank_.Settle(result.values.device.stream);
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t row = rows[i / static_cast<size_t>(kWidths[0])];
      ASSERT_EQ(values[i], dense[static_cast<size_t>(row * kWidths[0]) + i % static_cast<size_t>(kWidths[0])]);
    }
  }

  Device on(size_t table) const { return rank_.on(table % 2 == 0 ? rank_.stream : other_); }
  int index(size_t table) const { return index_[table]; }
  const TensorView& dense(size_t table) const { return dense_[table].view; }

  std::unique_ptr<GradientReducer> reducer;

 private:
  std::vector<float>& NewValues(int64_t count) {
    return *kept_.emplace_back(std::make_unique<std::vector<float>>(static_cast<size_t>(count)));
  }

  GpuRank& rank_;
  void* other_ = nullptr;
  std::vector<GpuRank::Memory> values_, dense_;
  std::vector<int> index_;
  int layer_ = 0;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;
};

TEST(GpuRowsTest, AreSummedBesideDenseOnes) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    for (const HostSizes& hosts : {HostSizes{1}, HostSizes{3}, HostSizes{1, 1}}) {
      RunOnGpus(hosts, seed, [](GpuRank& rank) {
        Tables tables(rank);
        ASSERT_THAT(tables.Start({.op = ReduceOp::kSum}), IsOk());
        for (int64_t step = 1; step <= 5; ++step) {
          ASSERT_THAT(tables.GiveAll(step), IsOk());
          if (step == 4) {
            ASSERT_THAT(tables.reducer->WaitFor(tables.index(1)), IsOk());
          }
          ASSERT_THAT(tables.reducer->Wait(), IsOk());
          for (size_t table = 0; table < 2; ++table) tables.Expect(table, {step}, 1);
        }
        EXPECT_EQ(rank.gpu->blocked(), 0);
      });
    }
  }
}

TEST(GpuRowsTest, MicroBatchesAreAddedUpAndNoRowsAreFine) {
  RunOnGpus({2}, 5, [](GpuRank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({.op = ReduceOp::kSum, .accumulate = 2}), IsOk());
    for (int64_t step = 1; step <= 3; ++step) {
      for (const int64_t micro : {2 * step, 2 * step + 1}) {
        ASSERT_THAT(tables.GiveAll(micro), IsOk());
        ASSERT_THAT(tables.reducer->Wait(), IsOk());
      }
      for (size_t table = 0; table < 2; ++table) tables.Expect(table, {2 * step, 2 * step + 1}, 1);
    }
    for (int micro = 0; micro < 2; ++micro) {
      for (size_t table = 0; table < 2; ++table) ASSERT_THAT(tables.reducer->Missing(tables.index(table)), IsOk());
      ASSERT_THAT(tables.GiveLayer(1), IsOk());
      ASSERT_THAT(tables.reducer->Wait(), IsOk());
    }
    EXPECT_TRUE(tables.reducer->result_rows(tables.index(0)).rows.empty());
  });
}

TEST(GpuRowsTest, AreClippedAndLookedAtWithDenseOnes) {
  RunOnGpus({2}, 6, [](GpuRank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({.op = ReduceOp::kSum, .max_norm = 1.0, .skip_non_finite = true}), IsOk());
    for (int64_t step = 2; step <= 4; ++step) {
      const bool finite = step != 3;
      const float odd = std::numeric_limits<float>::quiet_NaN();
      ASSERT_THAT(tables.Give(0, step, finite || rank.rank == 0 ? std::nullopt : std::optional(odd)), IsOk());
      ASSERT_THAT(tables.GiveLayer(1), IsOk());
      ASSERT_THAT(tables.Give(1, step), IsOk());
      const auto summary = tables.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->skipped, !finite);
      if (!finite) continue;
      double squares = 100 * 4;  // the layer: twos
      for (size_t table = 0; table < 2; ++table) {
        for (const float value : DenseSum(2, table, {step})) squares += double{value} * double{value};
      }
      EXPECT_DOUBLE_EQ(*summary->norm, std::sqrt(squares));
      const RowsView result = tables.reducer->result_rows(tables.index(0));
      std::vector<float> values(static_cast<size_t>(result.values.count));
      EXPECT_THAT(rank.gpu->Copy(values.data(), result.values.data, result.values.bytes(), rank.stream), IsOk());
      rank.Settle(rank.stream);
      const std::vector<float> sums = DenseSum(2, 0, {step});
      for (size_t i = 0; i < values.size(); ++i) {
        const auto at = static_cast<size_t>(result.rows[i / 3] * 3) + i % 3;
        EXPECT_FLOAT_EQ(values[i], sums[at] / static_cast<float>(std::sqrt(squares)));
      }
    }
  });
}

TEST(GpuRowsTest, WhatIsElsewhereIsRefused) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({}), IsOk());
    const std::vector<int64_t> rows = {1}, wrong = {kRows};
    std::vector<float> host(3), all(kRows * 3);
    auto there = rank.Tensor(DType::kF32, 3, rank.stream);
    GradientReducer& reducer = *tables.reducer;
    EXPECT_THAT(reducer.ReadyRows(tables.index(0), rows, host),
                MatchesStatus(StatusCode::kInvalidArgument, "gradient \"embedding\": they were registered on GPU 0"));
    EXPECT_THAT(reducer.ReadyRows(tables.index(0), wrong, there.view),
                MatchesStatus(StatusCode::kInvalidArgument, "given was row 40"));
    EXPECT_THAT(reducer.ScatterRows(tables.index(0), all),
                MatchesStatus(StatusCode::kInvalidArgument, "given was memory of the host"));

    auto on_host = *GradientReducer::Create(rank.world());
    const std::vector<int64_t> shape = {kRows, 3};
    ASSERT_THAT(on_host->RegisterRows("a", shape), IsOk());
    EXPECT_THAT(on_host->Register("b", shape, DType::kF32, rank.device()),
                MatchesStatus(StatusCode::kInvalidArgument, "\"b\" is on GPU 0, those before it on the host"));
    ASSERT_THAT(on_host->Start(), IsOk());
    EXPECT_THAT(on_host->ReadyRows(0, rows, there.view),
                MatchesStatus(StatusCode::kInvalidArgument, "registered on the host"));
  });
}

TEST(GpuRowsTest, AGpuThatHangsEndsTheStepOnAllRanks) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    Tables tables(rank);
    const bool hangs = rank.rank == 1;
    rank.Meet();
    ASSERT_THAT(tables.Start({.timeout = TimeoutOf(hangs)}), IsOk());
    ASSERT_THAT(tables.GiveAll(2), IsOk());
    ASSERT_THAT(tables.reducer->Wait(), IsOk());
    rank.Meet();
    ASSERT_THAT(tables.GiveLayer(1), IsOk());
    ASSERT_THAT(tables.reducer->Missing(tables.index(1)), IsOk());
    rank.gpu->Hold(tables.on(1).stream, hangs);
    const std::vector<int64_t> rows = {4};
    auto values = rank.Tensor(DType::kF32, 3, tables.on(1).stream);
    ASSERT_THAT(tables.reducer->ReadyRows(tables.index(0), rows, values.view), IsOk());
    EXPECT_THAT(tables.reducer->Wait().status().message(), testing::HasSubstr("rows have not come from the GPU"));
    rank.gpu->Hold(tables.on(1).stream, false);
    rank.gpu->Free(nullptr);  // does all that is queued
  });
}

// There is no dense gradient, with which the GPU would have failed as well.
TEST(GpuRowsTest, RowsThatFailToComeEndTheStepOnAllRanks) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto reducer = GradientReducer::Create(rank.world()).value();
    const std::vector<int64_t> shape = {kRows, 3}, rows = {4};
    const int table = reducer->RegisterRows("embedding", shape, DType::kF32, rank.device()).value();
    ASSERT_THAT(reducer->Start(), IsOk());
    auto values = rank.Tensor(DType::kF32, 3, rank.stream);
    rank.Meet();
    if (rank.rank == 1) rank.gpu->Fail(absl::InternalError("fell off the bus"));
    ASSERT_THAT(reducer->ReadyRows(table, rows, values.view), IsOk());
    rank.gpu->Fail(absl::OkStatus());
    EXPECT_THAT(reducer->Wait().status().message(), testing::HasSubstr("fell off the bus"));
  });
}

TEST(GpuRowsTest, WeightsAreUpdatedAsOnTheHost) {
  const std::vector<OptimizerConfig> rules = {Sgd{.learning_rate = 0.5f}, Momentum{.learning_rate = 0.5f}, Adam{},
                                              Adagrad{}};
  for (unsigned seed = 0; seed < rules.size(); ++seed) {
    RunOnGpus({2}, seed, [&](GpuRank& rank) {
      const OptimizerConfig& rule = rules[seed];
      constexpr int64_t kWidth = kWidths[0];
      auto table = rank.Tensor(DType::kF32, kRows * kWidth, rank.stream);
      auto layer = rank.Tensor(DType::kF32, 20, rank.stream);
      void* const other = *rank.gpu->CreateStream();  // that values are given on
      auto values = rank.Tensor(DType::kF32, kRows * kWidth, other);
      const std::vector<float> spoilt(kRows * kWidth, 1e30f);
      std::vector<float> weights(kRows * kWidth, 1.0f), dense(20, 1.0f), got(weights.size()), got_dense(20);
      rank.Put(table.view, weights.data());
      rank.Put(layer.view, dense.data());
      rank.Settle(rank.stream);
      const auto span = [](const TensorView& view) {
        return std::span(static_cast<float*>(view.data), static_cast<size_t>(view.count));
      };
      const std::vector<int64_t> counts = {kRows * kWidth, 20}, shape = {20};
      Optimizer reference = Optimizer::Create(rule, counts).value();
      auto optimizer = DistributedOptimizer::Create(rank.world(), rule).value();
      const int of_table = optimizer->RegisterRows("table", span(table.view), kRows, rank.device()).value();
      const int of_layer = optimizer->Register("layer", span(layer.view), shape, rank.device()).value();
      ASSERT_THAT(optimizer->Start(), IsOk());
      for (int64_t step = 1; step <= 5; ++step) {
        const std::vector<int64_t> rows = RowsOf(rank.rank, step);
        std::vector<float> mine(static_cast<size_t>(std::ssize(rows) * kWidth));
        for (size_t i = 0; i < mine.size(); ++i) mine[i] = RowValueOf(rank.rank, 0, static_cast<int64_t>(i), step);
        const TensorView given = values.view.Slice(0, std::ssize(mine));
        rank.Put(given, mine.data());
        ASSERT_THAT(optimizer->ReadyRows(of_table, rows, given), IsOk());
        rank.Put(values.view, spoilt.data());
        const std::vector<float> ones(20, 1.0f);
        const std::span<float> home = optimizer->gradient(of_layer);
        rank.Put(TensorView(home.data(), 20, DType::kF32, rank.device()), ones.data());
        ASSERT_THAT(optimizer->Ready(of_layer), IsOk());
        if (step % 2 == 0) {
          ASSERT_THAT(optimizer->StepOne(of_table), IsOk());
        }
        ASSERT_THAT(optimizer->Step(), IsOk());
        rank.Get(table.view, got.data());
        rank.Get(layer.view, got_dense.data());
        rank.Settle(rank.stream);
        rank.Settle(other);

        const std::vector<int64_t> all = AllRows(2, {step});
        const std::vector<float> sum = DenseSum(2, 0, {step});
        std::vector<float> average;
        for (const int64_t row : all) {
          for (int64_t i = 0; i < kWidth; ++i) average.push_back(sum[static_cast<size_t>(row * kWidth + i)] / 2);
        }
        ASSERT_THAT(reference.StepRows(0, weights, kRows, {all, average}), IsOk());
        ASSERT_THAT(reference.Step(1, dense, ones), IsOk());
        EXPECT_EQ(got, weights) << rule.index() << ", step " << step;
        EXPECT_EQ(got_dense, dense);
      }
      EXPECT_EQ(optimizer->Save(), reference.Save());
      rank.gpu->DestroyStream(other);
    });
  }
}

}  // namespace
}  // namespace gyre
