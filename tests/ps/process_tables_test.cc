// Tables of rows, by real servers and workers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gyre/gyre.h"
#include "process_fixture.h"

namespace gyre::ps {
namespace {

using std::chrono::milliseconds;
using support::IsOk;
using support::MatchesStatus;

// Some rows in each step, one of them twice, by the step and the worker.
std::vector<int64_t> RowsOf(int worker, int step) {
  return {step, 40 + worker, 2 * step + worker, step, 20 + step * worker};
}

// Of what was pulled: rows that are late or lost show.
std::vector<float> GradientsOf(const std::vector<float>& values, int worker) {
  std::vector<float> gradients;
  for (size_t i = 0; i < values.size(); ++i) {
    gradients.push_back(values[i] * 0.5f + static_cast<float>((i + static_cast<size_t>(worker)) % 7));
  }
  return gradients;
}

std::vector<float> ReferenceRows(const Table& table, int workers, int steps, float (*rate)(int)) {
  const auto columns = static_cast<size_t>(table.columns);
  std::vector<float> weights(static_cast<size_t>(table.rows) * columns);
  const auto row = [&](int64_t id) { return std::span(weights).subspan(static_cast<size_t>(id) * columns, columns); };
  for (int64_t id = 0; id < table.rows; ++id) MakeRow(table, KeyOf(table), id, row(id));
  const auto count = static_cast<int64_t>(weights.size());
  Optimizer optimizer = *Optimizer::Create(Momentum{.learning_rate = 0.5f}, std::span(&count, 1));
  for (int step = 0; step < steps; ++step) {
    std::map<int64_t, std::vector<float>> sums;
    for (int worker = 0; worker < workers; ++worker) {
      const std::vector<int64_t> ids = RowsOf(worker, step);
      std::vector<float> values;
      for (const int64_t id : ids) std::ranges::copy(row(id), std::back_inserter(values));
      const std::vector<float> gradients = GradientsOf(values, worker);
      std::map<int64_t, std::vector<float>> own;
      for (size_t i = 0; i < gradients.size(); ++i) {
        own.try_emplace(ids[i / columns], std::vector<float>(columns, -0.0f)).first->second[i % columns] +=
            gradients[i];
      }
      for (const auto& [id, sum] : own) {
        std::vector<float>& total = sums.try_emplace(id, std::vector<float>(columns, -0.0f)).first->second;
        for (size_t c = 0; c < columns; ++c) total[c] += sum[c];
      }
    }
    std::vector<int64_t> ids;
    std::vector<float> means;
    for (const auto& [id, sum] : sums) {
      ids.push_back(id);
      for (const float value : sum) means.push_back(value * (1.0f / static_cast<float>(workers)));
    }
    EXPECT_THAT(optimizer.SetLearningRate(rate(step)), IsOk());
    EXPECT_THAT(optimizer.StepRows(0, weights, table.rows, {ids, {means.data(), std::ssize(means), DType::kF32}}),
                IsOk());
  }
  return weights;
}

// With replicas they are lost with their disks, while workers keep nothing that was acknowledged.
class TableTest : public ProcessTest, public testing::WithParamInterface<int> {
 protected:
  TableTest() {
    replicas_ = GetParam();
    retain_ = replicas_ > 0 ? 0 : 64;
  }

  void Strike(Client& client, Serving& server) {
    if (replicas_ > 0) {
      ASSERT_THAT(client.Deliver(Soon()), IsOk());
    }
    server.Kill();
    if (replicas_ > 0) server.LoseDisk();
    server.Start(Endpoints());
  }
};

INSTANTIATE_TEST_SUITE_P(Replicas, TableTest, testing::Values(0, 1));

TEST_P(TableTest, IsTrainedToTheBitThoughServersDie) {
  constexpr int kSteps = 8;
  const Table table{.name = "rows", .rows = 64, .columns = 3, .first = UniformRows{0.5f, 3}};
  tables_ = {{.name = "other", .rows = 5}, table};
  StartServers(2);
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> ends(2);
  for (int worker = 0; worker < workers_; ++worker) {
    threads.emplace_back([&, worker] {
      std::vector<float> model, gradient(Elements());
      auto client = Worker(worker, model);
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_THAT(client->Begin(Soon()).status(), IsOk());
        if (worker == 1 && (step == 2 || step == 5)) {  // in the middle of a step, whose rows are then asked for
          Strike(*client, *servers_[step == 2 ? 0 : 1]);
        }
        const std::vector<int64_t> ids = RowsOf(worker, step);
        std::vector<float> values(ids.size() * 3);
        ASSERT_THAT(client->PullRows(1, ids, values, Soon()), IsOk());
        std::vector<Floats> rows(2);  // of the other table: none
        std::ranges::move(*PackRows(table, 2, ids, GradientsOf(values, worker)), std::back_inserter(rows));
        ASSERT_THAT(client->End(gradient, RateOf(step), std::move(rows)), IsOk());
      }
      ASSERT_THAT(client->Begin(Soon()).status(), IsOk());
      std::vector<int64_t> all(64);
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
      std::vector<float>& end = ends[static_cast<size_t>(worker)];
      end.resize(64 * 3);
      ASSERT_THAT(client->PullRows(1, all, end, Soon()), IsOk());
      EXPECT_THAT(client->PullRows(2, all, end, Soon()),
                  MatchesStatus(absl::StatusCode::kInvalidArgument, "no table 2"));
      ASSERT_THAT(client->Deliver(Soon()), IsOk());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<float> expected = ReferenceRows(table, workers_, kSteps, RateOf);
  EXPECT_EQ(ends[0], expected);
  EXPECT_EQ(ends[1], expected);
}

TEST_F(ProcessTest, RowsThatDoNotComeSayWhoHasThem) {
  tables_ = {{.name = "rows", .rows = 64, .columns = 3}};
  StartServers(1);
  workers_ = 1;
  std::vector<float> model, values(3, -7.0f);
  auto client = Worker(0, model);
  const int64_t id = 5;
  EXPECT_THAT(client->PullRows(0, std::span(&id, 1), values, Soon()),
              MatchesStatus(absl::StatusCode::kFailedPrecondition, "no step has begun"));
  ASSERT_THAT(client->Begin(Soon()).status(), IsOk());
  servers_[0]->Kill();
  EXPECT_THAT(client->PullRows(0, std::span(&id, 1), values, std::chrono::steady_clock::now() + milliseconds(300)),
              MatchesStatus(absl::StatusCode::kDeadlineExceeded, "server 0 has not sent its rows"));
  EXPECT_EQ(values, std::vector<float>(3, -7.0f));
  servers_[0]->Start();
  EXPECT_THAT(client->PullRows(0, std::span(&id, 1), values, Soon()), IsOk());
  EXPECT_EQ(values, std::vector<float>(3, 0.0f));
}

// As a program sees it: rows count for themselves in what a step says of itself, and one that could not be pushed
// leaves none behind.
TEST_F(ProcessTest, AStepThatFailedIsMadeAgainWithAllItsRows) {
  StartServers(1);
  ASSERT_EQ(setenv("GYRE_STRATEGY", absl::StrCat("ps,servers=", ToString(Endpoints()[0])).c_str(), 1), 0);
  ASSERT_EQ(setenv("GYRE_EPOCH", "3", 1), 0);
  const auto runtime = Runtime::Create({.rank = 0, .size = 1, .job_id = "job", .secret = kSecret}).value();
  unsetenv("GYRE_EPOCH");
  unsetenv("GYRE_STRATEGY");
  std::vector<float> weights(256 * 256), ones(20'000 * 8, 1.0f);
  const int64_t shape[] = {256, 256};
  auto optimizer =
      DistributedOptimizer::Create(runtime->world(), Sgd{.learning_rate = 1}, {.compression = Int8{}}).value();
  ASSERT_THAT(optimizer->Register("w", weights, shape), IsOk());
  ParameterServerClient& client = *optimizer->servers();
  const int narrow = client.RegisterTable("narrow", 1 << 20, 8).value();
  const int wide = client.RegisterTable("wide", 20, 1 << 20).value();
  ASSERT_THAT(optimizer->Start(), IsOk());

  std::vector<int64_t> ids(20'000);
  std::iota(ids.begin(), ids.end(), 0);
  const auto push_narrow = [&] {
    std::ranges::fill(optimizer->gradient(0), 1.0f);
    EXPECT_THAT(optimizer->Ready(0), IsOk());
    EXPECT_THAT(client.PushRows(narrow, ids, ones), IsOk());
  };
  push_narrow();
  const auto first = optimizer->Step();
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->compression, CompressionUse::kAsForced);  // of the weights, however many rows there are
  const auto dense = static_cast<int64_t>(weights.size() * sizeof(float));
  const auto rows = static_cast<int64_t>(ids.size() * (8 * sizeof(float) + sizeof(int64_t)));
  EXPECT_NEAR(static_cast<double>(first->bytes), static_cast<double>(dense + rows), 100);
  EXPECT_GT(first->compressed_bytes, rows + dense / 4);
  EXPECT_LT(first->compressed_bytes, rows + dense / 3);

  push_narrow();
  const int64_t wide_ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  ASSERT_THAT(client.PushRows(wide, wide_ids, std::vector<float>(17 << 20)), IsOk());
  EXPECT_THAT(optimizer->Step(), MatchesStatus(absl::StatusCode::kInvalidArgument, "more than the 64 MiB"));
  push_narrow();
  ASSERT_THAT(optimizer->Step(), IsOk());
  std::vector<float> values(8);
  ASSERT_THAT(client.PullRows(narrow, std::span(ids).first(1), values), IsOk());
  EXPECT_EQ(values, std::vector<float>(8, -2.0f));  // of two steps
}

}  // namespace
}  // namespace gyre::ps
