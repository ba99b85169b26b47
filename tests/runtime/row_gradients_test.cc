// Gradients that are given as rows, beside dense ones.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gyre/distributed_optimizer.h"
#include "runtime/reducer_fixture.h"
#include "support/temporary.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;
using support::Rank;
using support::RunThreads;
using support::Trainer;

constexpr int64_t kRows = 40;

// Two tables of rows of 3 and 2 x 5 elements in the reducer of a trainer, the second in half precision, registered
// around its dense gradients. What a rank gives of them depends on everything, and is exact in every dtype.
struct Tables {
  Trainer trainer;
  std::vector<int> index;  // the reducer's
  static constexpr int64_t kWidths[] = {3, 10};

  explicit Tables(const Rank& rank) : trainer(rank, {}) {}

  absl::Status Start(const ReducerOptions& options, std::vector<support::Parameter> dense = {{{100}}, {{7}}},
                     std::unique_ptr<Runtime> joined = nullptr) {
    const Rank& rank = trainer.rank;
    trainer.parameters = std::move(dense);
    trainer.runtime = joined != nullptr ? std::move(joined) : JoinJob(rank);
    trainer.reducer = GradientReducer::Create(trainer.runtime->world(), options).value();
    GradientReducer& reducer = *trainer.reducer;
    index = {0, 0};
    for (const int which : rank.rank % 2 == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0}) {
      index[static_cast<size_t>(which)] =
          which == 0 ? reducer.RegisterRows("embedding", std::vector<int64_t>{kRows, 3}).value()
                     : reducer.RegisterRows("words", std::vector<int64_t>{kRows, 2, 5}, DType::kBF16).value();
    }
    for (size_t p = 0; p < trainer.parameters.size(); ++p) {
      trainer.index.push_back(
          reducer.Register(absl::StrCat("layer", p), trainer.parameters[p].shape, trainer.parameters[p].dtype).value());
    }
    return reducer.Start();
  }

  // Rank 1 has none in every second step; others have duplicates, out of order; in step 3 all have all rows.
  static std::vector<int64_t> RowsOf(int rank, int64_t step) {
    std::vector<int64_t> rows;
    if (rank == 1 && step % 2 == 1 && step != 3) return rows;
    const int64_t count = step == 3 ? kRows : 5 + rank;
    for (int64_t i = count - 1; i >= 0; --i) rows.push_back(step == 3 ? i : (i * i + 3 * rank + step) % 11);
    return rows;
  }
  static float ValueOf(int rank, size_t table, int64_t i, int64_t step) {
    return static_cast<float>((i * 7 + rank * 5 + static_cast<int64_t>(table) * 3 + step) % 9 - 4);
  }
  static std::vector<float> ValuesOf(int rank, size_t table, int64_t step) {
    std::vector<float> values(RowsOf(rank, step).size() * static_cast<size_t>(kWidths[table]));
    for (size_t i = 0; i < values.size(); ++i) values[i] = ValueOf(rank, table, static_cast<int64_t>(i), step);
    return values;
  }

  absl::Status GiveRows(size_t table, int64_t step) {
    return trainer.reducer->ReadyRows(index[table], RowsOf(trainer.rank, step), ValuesOf(trainer.rank, table, step));
  }

  // The sum over ranks of what they gave, of all elements.
  static std::vector<double> DenseSum(int ranks, size_t table, int64_t step) {
    std::vector<double> sum(static_cast<size_t>(kRows * kWidths[table]));
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int64_t> rows = RowsOf(rank, step);
      const std::vector<float> values = ValuesOf(rank, table, step);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto width = static_cast<size_t>(kWidths[table]);
        sum[static_cast<size_t>(rows[i / width]) * width + i % width] += values[i];
      }
    }
    return sum;
  }

  void Expect(size_t table, int64_t step, double scale) const {
    std::vector<bool> given(kRows);
    for (int rank = 0; rank < trainer.rank.size; ++rank) {
      for (const int64_t row : RowsOf(rank, step)) given[static_cast<size_t>(row)] = true;
    }
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < kRows; ++row) {
      if (given[static_cast<size_t>(row)]) rows.push_back(row);
    }
    const RowsView result = trainer.reducer->result_rows(index[table]);
    ASSERT_TRUE(std::ranges::equal(result.rows, rows));
    EXPECT_EQ(result.values.count, std::ssize(rows) * kWidths[table]);
    std::vector<double> dense(static_cast<size_t>(kRows * kWidths[table]), 77), expected = dense;
    ASSERT_THAT(trainer.reducer->ScatterRows(index[table], dense), IsOk());
    std::ranges::transform(DenseSum(trainer.rank.size, table, step), expected.begin(),
                           [=](double sum) { return sum * scale; });
    EXPECT_EQ(dense, expected) << "table " << table << ", step " << step;
  }
};

void TrainRowsAndCheck(Tables& tables, int64_t steps) {
  Trainer& trainer = tables.trainer;
  for (int64_t step = 1; step <= steps; ++step) {
    ASSERT_THAT(tables.GiveRows(0, step), IsOk());
    for (size_t p = 0; p < trainer.parameters.size(); ++p) ASSERT_THAT(trainer.Give(p, step, p % 2 == 0), IsOk());
    ASSERT_THAT(tables.GiveRows(1, step), IsOk());
    const auto summary = trainer.reducer->Wait();
    ASSERT_THAT(summary, IsOk());
    EXPECT_EQ(summary->control_messages, step == 4 ? 2 : 0);  // then it plans
    for (size_t table = 0; table < 2; ++table) tables.Expect(table, step, 1);
    for (size_t p = 0; p < trainer.parameters.size(); ++p) {
      trainer.ExpectSum(p % 2 == 0 ? trainer.own(p) : trainer.shared(p), p, step, 1);
    }
  }
}

class RowGradientsOnRanks : public testing::TestWithParam<int> {};

TEST_P(RowGradientsOnRanks, AreSummedBesideDenseOnes) {
  RunThreads(GetParam(), [](const Rank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({.op = ReduceOp::kSum}), IsOk());
    for (const auto& p : tables.trainer.parameters) {
      tables.trainer.memory.emplace_back(static_cast<size_t>((p.count() + 1) * DTypeSize(p.dtype)));
    }
    TrainRowsAndCheck(tables, 5);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, RowGradientsOnRanks, testing::Values(1, 2, 3));

TEST(RowGradients, WorkAloneAndOverHosts) {
  RunThreads(3, [](const Rank& rank) {
    Tables tables(rank);
    auto joined = JoinJob(rank, JobOptions(rank, {2, 1}));
    ASSERT_THAT(tables.Start({.op = ReduceOp::kSum}, {}, std::move(joined)), IsOk());
    TrainRowsAndCheck(tables, 4);
  });
}

TEST(RowGradients, AreAveragedScaledAndAccumulated) {
  RunThreads(2, [](const Rank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({.prescale = 0.5, .postscale = 16, .accumulate = 2}, {}), IsOk());
    for (int round = 0; round < 2; ++round) {
      for (int micro = 0; micro < 2; ++micro) {
        for (size_t table = 0; table < 2; ++table) ASSERT_THAT(tables.GiveRows(table, 2), IsOk());
        const auto summary = tables.trainer.reducer->Wait();
        ASSERT_THAT(summary, IsOk());
        EXPECT_EQ(summary->reduced, micro == 1);
        EXPECT_EQ(summary->calls, micro == 1 ? 4 : 0);  // two tables of two dtypes, and so two buckets
      }
      for (size_t table = 0; table < 2; ++table) tables.Expect(table, 2, 16 * 0.5 / 2);  // two of each, over 2
    }
  });
}

// How many calls of a reducer have ended, by the timeline that is being written.
int BucketsIn(const std::string& timeline) {
  std::ifstream file(timeline);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  int count = 0;
  for (size_t at = 0; (at = text.find(R"("name":"bucket","ph":"e")", at)) != std::string::npos; ++at) ++count;
  return count;
}

// They travel while a dense gradient is still to come, before and after the plan changes, and with a plan that was
// saved, which gives the same bits.
TEST(RowGradients, OverlapWithTheBackwardPass) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "timeline";
  ASSERT_EQ(setenv("GYRE_TIMELINE", path.c_str(), 1), 0);
  std::vector<std::string> plans(2);
  const auto train = [&](const Rank& rank, const ReducerOptions& options, std::vector<double>& results) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start(options), IsOk());
    const std::string timeline = absl::StrCat(path, ".", rank.rank);
    Trainer& trainer = tables.trainer;
    for (int64_t step = 1; step <= 5; ++step) {
      ASSERT_THAT(trainer.Give(1, step, false), IsOk());
      for (size_t table = 0; table < 2; ++table) ASSERT_THAT(tables.GiveRows(table, step), IsOk());
      // Two tables and two dense gradients a step, of which only the last one is to come, by a plan that knows that.
      const bool knows = step > 2 || !options.plan.empty();
      const int64_t expected = 4 * (step - 1) + (knows ? 3 : 0);
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (BucketsIn(timeline) < expected && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
      }
      ASSERT_GE(BucketsIn(timeline), expected) << "step " << step;
      // Until Wait the results are those of the step before.
      if (step > 1) tables.Expect(1, step - 1, 1);
      ASSERT_THAT(trainer.Give(0, step, false), IsOk());
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->calls, 2 + 2 * 2) << "of dense parts, and two for each table";
      for (size_t table = 0; table < 2; ++table) tables.Expect(table, step, 1);
      for (size_t p = 0; p < 2; ++p) trainer.ExpectSum(trainer.shared(p), p, step, 1);
      results.resize(results.size() + kRows * 3);
      const std::span<double> dense = std::span(results).last(kRows * 3);
      ASSERT_THAT(trainer.reducer->ScatterRows(tables.index[0], dense), IsOk());
    }
    EXPECT_TRUE(trainer.reducer->planned());
    plans[static_cast<size_t>(rank.rank)] = trainer.reducer->plan();
  };
  std::vector<std::vector<double>> first(2), second(2);
  RunThreads(2, [&](const Rank& rank) { train(rank, {.op = ReduceOp::kSum, .bucket_bytes = 4}, first[rank]); });
  ASSERT_EQ(plans[0], plans[1]);
  const std::string saved = plans[0];
  RunThreads(2, [&](const Rank& rank) { train(rank, {.op = ReduceOp::kSum, .plan = saved}, second[rank]); });
  unsetenv("GYRE_TIMELINE");
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(first, second);
}

// The norm is of rows and dense gradients together; a row that is not finite skips the step everywhere.
TEST(RowGradients, AreClippedAndLookedAt) {
  RunThreads(2, [](const Rank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({.op = ReduceOp::kSum, .max_norm = 2.5, .skip_non_finite = true}, {{{1}}}), IsOk());
    GradientReducer& reducer = *tables.trainer.reducer;
    const auto give = [&](float value) {
      const std::vector<int64_t> row = {rank.rank};
      *static_cast<float*>(tables.trainer.shared(0).data) = rank == 0 ? 3 : 0;
      ASSERT_THAT(reducer.Ready(tables.trainer.index[0]), IsOk());
      ASSERT_THAT(reducer.ReadyRows(tables.index[0], row, std::vector<float>{rank == 1 ? value : 0.0f, 0, 0}), IsOk());
      ASSERT_THAT(reducer.Missing(tables.index[1]), IsOk());
    };
    give(4);
    auto summary = reducer.Wait();
    ASSERT_THAT(summary, IsOk());
    EXPECT_FALSE(summary->skipped);
    EXPECT_EQ(summary->norm, 5);
    EXPECT_EQ(*static_cast<float*>(tables.trainer.shared(0).data), 1.5f);
    const RowsView rows = reducer.result_rows(tables.index[0]);
    ASSERT_EQ(rows.rows.size(), 2u);
    EXPECT_EQ(static_cast<const float*>(rows.values.data)[3], 2.0f);
    EXPECT_TRUE(reducer.result_rows(tables.index[1]).rows.empty());
    give(std::numeric_limits<float>::infinity());
    summary = reducer.Wait();
    ASSERT_THAT(summary, IsOk());
    EXPECT_TRUE(summary->skipped);
  });
}

TEST(RowGradients, GiveAllRanksTheSameBits) {
  constexpr int kRanks = 3;
  std::vector<std::vector<float>> results(kRanks);
  RunThreads(kRanks, [&](const Rank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({}, {}), IsOk());
    std::mt19937_64& random = tables.trainer.random;
    std::vector<int64_t> rows(500);
    std::vector<float> values(1500);
    for (int64_t& row : rows) row = static_cast<int64_t>(random() % kRows);
    for (float& value : values)
      value = std::ldexp(static_cast<float>(random() % 10007), static_cast<int>(random() % 60) - 30);
    ASSERT_THAT(tables.trainer.reducer->ReadyRows(tables.index[0], rows, values), IsOk());
    ASSERT_THAT(tables.trainer.reducer->Missing(tables.index[1]), IsOk());
    ASSERT_THAT(tables.trainer.reducer->Wait(), IsOk());
    auto& result = results[static_cast<size_t>(rank.rank)];
    result.resize(kRows * 3);
    ASSERT_THAT(tables.trainer.reducer->ScatterRows(tables.index[0], result), IsOk());
  });
  for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(results[0], results[static_cast<size_t>(rank)]);
}

TEST(RowGradients, WrongOnesAreRefusedAndMayBeGivenAgain) {
  RunThreads(1, [](const Rank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({.op = ReduceOp::kSum}), IsOk());
    GradientReducer& reducer = *tables.trainer.reducer;
    const int embedding = tables.index[0], dense = tables.trainer.index[0];
    const std::vector<float> values(3);
    const auto refused = [](const char* why) { return MatchesStatus(StatusCode::kInvalidArgument, why); };
    EXPECT_THAT(reducer.ReadyRows(embedding, std::vector<int64_t>{kRows}, values), refused("given was row 40"));
    EXPECT_THAT(reducer.ReadyRows(embedding, std::vector<int64_t>{1, 2}, values), refused("\"embedding\""));
    EXPECT_THAT(reducer.ReadyRows(dense, std::vector<int64_t>{1}, values), refused("not registered as rows"));
    EXPECT_THAT(reducer.ReadyRows(99, {}, {}), refused("no gradient 99"));
    EXPECT_THAT(reducer.Ready(embedding), refused("ReadyRows"));
    std::vector<float> few(5), all(100);
    EXPECT_THAT(reducer.ScatterRows(embedding, few), refused("120 floating-point elements; given were 5"));
    EXPECT_THAT(reducer.ScatterRows(dense, all), refused("not registered as rows"));
    EXPECT_TRUE(reducer.result_rows(dense).rows.empty());
    EXPECT_THAT(reducer.RegisterRows("late", std::vector<int64_t>{1}),
                MatchesStatus(StatusCode::kFailedPrecondition, "Start"));
    ASSERT_THAT(reducer.ReadyRows(embedding, std::vector<int64_t>{39}, values), IsOk());
    EXPECT_THAT(reducer.ReadyRows(embedding, std::vector<int64_t>{39}, values),
                MatchesStatus(StatusCode::kFailedPrecondition, "\"embedding\" was ready"));
    for (const int other : {tables.index[1], dense, tables.trainer.index[1]})
      ASSERT_THAT(reducer.Missing(other), IsOk());
    ASSERT_THAT(reducer.Wait(), IsOk());
    EXPECT_EQ(reducer.result_rows(embedding).rows[0], 39);
    auto other = GradientReducer::Create(tables.trainer.runtime->world()).value();
    EXPECT_THAT(other->RegisterRows("scalar", {}), refused("no dimensions"));
    EXPECT_THAT(other->RegisterRows("integers", std::vector<int64_t>{1}, DType::kI32), refused("i32"));
  });
}

TEST(RowGradients, RanksMustAgreeWhichAreRows) {
  RunThreads(2, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    auto reducer = GradientReducer::Create(runtime->world()).value();
    const std::vector<int64_t> shape = {4, 5};
    ASSERT_THAT(rank == 0 ? reducer->Register("w", shape) : reducer->RegisterRows("w", shape), IsOk());
    EXPECT_THAT(reducer->Start(), MatchesStatus(StatusCode::kInvalidArgument,
                                                "\"w\" is f32 [4, 5] on rank 0 and f32 [4, 5] by rows on rank 1"));
  });
}

// Rank 1 goes away without its rows: the other is told who and what.
TEST(RowGradients, ALostRankEndsTheStep) {
  RunThreads(2, [](const Rank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({.timeout = std::chrono::seconds(10)}, {}), IsOk());
    ASSERT_THAT(tables.GiveRows(0, 1), IsOk());
    if (rank == 1) {
      tables.trainer.reducer.reset();  // amid the step
      return;
    }
    ASSERT_THAT(tables.GiveRows(1, 1), IsOk());
    EXPECT_THAT(tables.trainer.reducer->Wait(), MatchesStatus(StatusCode::kAborted, "rank 1"));
    EXPECT_THAT(tables.GiveRows(0, 2), MatchesStatus(StatusCode::kFailedPrecondition, "has failed"));
  });
}

TEST(RowGradients, LateRowsAreNamed) {
  RunThreads(1, [](const Rank& rank) {
    Tables tables(rank);
    ASSERT_THAT(tables.Start({.timeout = std::chrono::milliseconds(100)}, {}), IsOk());
    ASSERT_THAT(tables.GiveRows(0, 1), IsOk());
    EXPECT_THAT(tables.trainer.reducer->Wait(), MatchesStatus(StatusCode::kDeadlineExceeded, "\"words\""));
  });
}

// The same embedding trained by rows and densely: equal bits, as a row without a gradient stays where it is.
TEST(DistributedOptimizer, UpdatesRowsAsItUpdatesDenseWeights) {
  for (const OptimizerConfig& config : {OptimizerConfig(Sgd{.learning_rate = 0.3f}), OptimizerConfig(Adagrad{})}) {
    RunThreads(2, [&](const Rank& rank) {
      const auto runtime = JoinJob(rank);
      auto optimizer = DistributedOptimizer::Create(runtime->world(), config).value();
      std::vector<float> by_rows(kRows * 3, static_cast<float>(rank.rank + 1)), dense = by_rows;
      const int rows_index = optimizer->RegisterRows("by rows", by_rows, kRows).value();
      const int dense_index = optimizer->Register("dense", dense).value();
      EXPECT_THAT(optimizer->RegisterRows("odd", by_rows, 7),
                  MatchesStatus(StatusCode::kInvalidArgument, "not 7 rows"));
      ASSERT_THAT(optimizer->Start(), IsOk());
      for (int64_t step = 1; step <= 4; ++step) {
        const std::vector<int64_t> rows = Tables::RowsOf(rank, step);
        const std::vector<float> values = Tables::ValuesOf(rank, 0, step);
        ASSERT_THAT(optimizer->ReadyRows(rows_index, rows, values), IsOk());
        const std::span<float> gradient = optimizer->gradient(dense_index);
        std::ranges::fill(gradient, 0.0f);
        for (size_t i = 0; i < values.size(); ++i) gradient[static_cast<size_t>(rows[i / 3]) * 3 + i % 3] += values[i];
        ASSERT_THAT(optimizer->Ready(dense_index), IsOk());
        ASSERT_THAT(optimizer->Step(), IsOk());
        EXPECT_EQ(by_rows, dense);
      }
      EXPECT_NE(by_rows, std::vector<float>(by_rows.size(), 1.0f));
    });
  }
}

}  // namespace
}  // namespace gyre
