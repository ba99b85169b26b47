// Tables: where rows lie, how they begin, how they travel, and how they are updated.
#include "ps/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gyre/optimizer.h"
#include "memory_disk.h"
#include "ps/layout.h"
#include "ps/row_store.h"
#include "ps/row_table.h"
#include "ps/server.h"
#include "ps/table.h"
#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::ps {
namespace {

using support::IsOk;
using support::MatchesStatus;

Table Words(int64_t rows, int64_t columns) {
  return {.name = "words", .rows = rows, .columns = columns, .first = UniformRows{0.5f, 7}};
}

std::vector<float> FirstRow(const Table& table, int64_t row) {
  std::vector<float> values(static_cast<size_t>(table.columns));
  MakeRow(table, KeyOf(table), row, values);
  return values;
}

TEST(TableTest, ServersHaveEqualSharesOfAnyRun) {
  const uint64_t key = KeyOf(Words(1 << 20, 1));
  for (const int servers : {1, 2, 3, 7}) {
    for (const auto& [begin, stride] : {std::pair{0, 1}, {1'000'000, 1}, {0, 64}, {5, 1 << 20}}) {
      std::vector<int> counts(static_cast<size_t>(servers));
      for (int64_t i = 0; i < 70'000; ++i) ++counts[static_cast<size_t>(ServerOf(key, begin + i * stride, servers))];
      for (const int count : counts) EXPECT_NEAR(count, 70'000 / servers, 1'000);
    }
  }
}

TEST(TableTest, RowsBeginAlikeEverywhereAndUnlikeEachOther) {
  const Table table = Words(int64_t{1} << 48, 1000);
  const std::vector<float> row = FirstRow(table, 5);
  EXPECT_EQ(row, FirstRow(table, 5));
  EXPECT_NE(row, FirstRow(table, 6));
  Table other = table;
  other.name = "others";
  EXPECT_NE(row, FirstRow(other, 5));
  other = table;
  other.first = UniformRows{0.5f, 8};
  EXPECT_NE(row, FirstRow(other, 5));
  double sum = 0;
  for (int64_t id = 0; id < 100; ++id) {
    for (const float value : FirstRow(table, id << 40)) {
      EXPECT_GE(value, -0.5f);
      EXPECT_LT(value, 0.5f);
      sum += value;
    }
  }
  EXPECT_NEAR(sum / 100'000, 0, 0.005);
  other.first = ConstantRows{3};
  EXPECT_EQ(FirstRow(other, 9), std::vector<float>(1000, 3.0f));
}

TEST(TableTest, WhatIsOutOfRangeIsNamed) {
  const auto expect = [](const Table& table, const char* what) {
    EXPECT_THAT(Check(table), MatchesStatus(absl::StatusCode::kInvalidArgument, what));
  };
  expect({}, "no name");
  expect(Words(-1, 1), "words has -1 rows");
  expect(Words((int64_t{1} << 48) + 1, 1), "rows");
  expect(Words(1, 0), "0 columns");
  expect({.name = "w", .rows = 1, .first = ConstantRows{NAN}}, "not finite");
  expect({.name = "w", .rows = 1, .first = UniformRows{-1}}, "limit");
  EXPECT_THAT(Check(Words(0, 1)), IsOk());
  const Tensor tensors[] = {{"words", 3}};
  const Table tables[] = {Words(9, 1)};
  EXPECT_THAT(Layout::Create(tensors, 2, kPartitionBytes, tables).status(),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "words"));
}

TEST(TableTest, HasAPartAtEachServerAfterItsTensors) {
  const Tensor tensors[] = {{"a", 3}, {"b", 5}};
  const Table tables[] = {Words(9, 2), {.name = "more", .rows = 1}};
  const Layout plain = *Layout::Create(tensors, 3), layout = *Layout::Create(tensors, 3, kPartitionBytes, tables);
  EXPECT_NE(plain.fingerprint(), layout.fingerprint());
  EXPECT_EQ(plain.elements(), layout.elements());
  for (int server = 0; server < 3; ++server) {
    ASSERT_EQ(layout.OfServer(server).size(), plain.OfServer(server).size() + 2);
    EXPECT_EQ(layout.BytesOf(server), plain.BytesOf(server));
    for (int table = 0; table < 2; ++table) {
      const auto slot = static_cast<size_t>(layout.SlotOf(table, server));
      const Partition& part = layout.partitions()[static_cast<size_t>(layout.OfServer(server)[slot])];
      EXPECT_EQ(part.table, table);
      EXPECT_EQ(part.slot, static_cast<int>(slot));
    }
  }
}

TEST(RowStoreTest, KeepsWhatWasMade) {
  for (const size_t floats : {size_t{1}, size_t{3}, size_t{100'000}}) {
    RowStore store(floats);
    std::map<int64_t, float> expected;
    support::Mutator random(floats);
    for (int i = 0; i < (floats > 1000 ? 50 : 20'000); ++i) {
      const auto id = static_cast<int64_t>(random.Below(5'000)) << random.Below(40);
      const auto [row, made] = store.FindOrMake(id);
      EXPECT_EQ(made, !expected.contains(id));
      ASSERT_EQ(row.size(), floats);
      expected[id] = row.front() = row.back() = static_cast<float>(i);
    }
    ASSERT_EQ(store.size(), expected.size());
    for (const auto& [id, value] : expected) ASSERT_EQ(store.Find(id)[floats - 1], value);
    for (size_t place = 0; place < store.size(); ++place) {
      ASSERT_EQ(store.row(place).front(), expected[store.id(place)]);
    }
    EXPECT_EQ(store.Find(4'999'999), nullptr);
  }
}

TEST(RowsTest, EqualIdsAreOneRowWithTheirSum) {
  const Table table = Words(100, 2);
  const std::vector<int64_t> ids = {7, 3, 7, 99, 0, 7};
  const std::vector<float> gradients = {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60};
  for (const int servers : {1, 2, 5}) {
    const auto packed = *PackRows(table, servers, ids, gradients);
    std::map<int64_t, float> rows;
    for (int server = 0; server < servers; ++server) {
      const Floats& words = packed[static_cast<size_t>(server)];
      ASSERT_TRUE(AreRows(words.bytes(), table));
      const RowsReader reader(words.span(), 2);
      for (size_t i = 0; i < reader.size(); ++i) {
        EXPECT_EQ(ServerOf(KeyOf(table), reader.id(i), servers), server);
        EXPECT_EQ(reader.row(i)[1], 10 * reader.row(i)[0]);
        rows[reader.id(i)] += reader.row(i)[0];
      }
    }
    EXPECT_EQ(rows, (std::map<int64_t, float>{{0, 5}, {3, 2}, {7, 10}, {99, 4}}));
  }
  EXPECT_EQ((*PackRows(table, 2, {}, {}))[1].size(), 1u);
  EXPECT_TRUE(AreRows(NoRows().bytes(), table));
}

TEST(RowsTest, WhatATableDoesNotHaveIsRefused) {
  const Table table = Words(100, 2);
  const std::vector<float> two(2);
  for (const int64_t id : {int64_t{-1}, int64_t{100}, INT64_MAX, INT64_MIN}) {
    EXPECT_THAT(PackRows(table, 2, std::span(&id, 1), two).status(),
                MatchesStatus(absl::StatusCode::kInvalidArgument, "has no row"));
    EXPECT_THAT(RowRequest::Create(table, 2, std::span(&id, 1)).status(),
                MatchesStatus(absl::StatusCode::kInvalidArgument, "has no row"));
  }
  EXPECT_FALSE(PackRows(table, 2, {}, two).ok());
  const Table wide = Words(100, 1 << 20);
  std::vector<int64_t> ids(17);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  EXPECT_THAT(
      RowRequest::Create(wide, 1, ids).status(),
      MatchesStatus(absl::StatusCode::kInvalidArgument, "17 different rows for server 0 are more than the 64 MiB"));
}

TEST(RowsTest, BytesThatAreNoRowsAreNone) {
  const Table table = Words(100, 3);
  const std::vector<int64_t> ids = {1, 5, 99};
  const auto packed = *PackRows(table, 1, ids, std::vector<float>(9, 1.0f));
  const std::string good(AsText(packed[0].bytes()));
  ASSERT_TRUE(AreRows(AsBytes(good), table));
  for (size_t cut = 0; cut < good.size(); ++cut) EXPECT_FALSE(AreRows(AsBytes(good).first(cut), table));
  EXPECT_FALSE(AreRows(AsBytes(good), Words(99, 3)));
  EXPECT_FALSE(AreRows(AsBytes(good), Words(100, 2)));
  std::string unsorted = good;
  std::swap(unsorted[4], unsorted[12]);
  EXPECT_FALSE(AreRows(AsBytes(unsorted), table));
  std::string twice = good;
  twice[12] = twice[4];
  EXPECT_FALSE(AreRows(AsBytes(twice), table));
  support::Mutator random(3);
  RowTable rows = *RowTable::Create(table, std::nullopt);
  for (int i = 0; i < 3'000; ++i) {
    const std::string bytes = random.Mutated(std::string(good));
    if (!rows.Fits(AsBytes(bytes))) continue;
    const Floats words = Floats::CopyOf(AsBytes(bytes));
    const std::span<const float> push = words.span();
    rows.Apply(std::span(&push, 1), std::nullopt);
    const Bytes some = AsBytes(bytes).subspan(4);
    std::vector<float> values(rows.FloatsFor(some).value_or(0));
    if (!values.empty()) rows.Read(some, values);
  }
  EXPECT_LE(rows.touched(), 100u);
}

// What a request asks for is what comes back, in the order of the ids.
TEST(RowsTest, AnswersAreSpreadOverTheIds) {
  const Table table = Words(1000, 3);
  std::vector<int64_t> ids = {7, 3, 7, 999, 0, 7, 3};
  for (const int servers : {1, 3}) {
    const RowRequest request = *RowRequest::Create(table, servers, ids);
    EXPECT_EQ(request.size(), 21u);
    const RowTable rows = *RowTable::Create(table, std::nullopt);
    std::vector<Floats> answers;
    size_t asked = 0;
    for (int server = 0; server < servers; ++server) {
      const Bytes own = request.ids(server).bytes();
      ASSERT_EQ(rows.FloatsFor(own), request.FloatsFrom(server));
      asked += request.FloatsFrom(server) / 3;
      answers.emplace_back(request.FloatsFrom(server));
      rows.Read(own, answers.back().writable());
    }
    EXPECT_EQ(asked, 4u);
    std::vector<float> values(21);
    request.Spread(answers, values);
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(std::vector<float>(values.begin() + 3 * static_cast<int64_t>(i),
                                   values.begin() + 3 * static_cast<int64_t>(i) + 3),
                FirstRow(table, ids[i]));
    }
  }
}

// A table on servers is, to the bit, the whole one with Optimizer::StepRows, also from a snapshot on; memory is for
// rows that were pushed.
TEST(RowTableTest, UpdatesAreTheOptimizers) {
  const Table table = Words(60, 5);
  for (const std::optional<OptimizerConfig>& rule :
       {std::optional<OptimizerConfig>(), std::optional<OptimizerConfig>(Sgd{0.1f, 0.01f}),
        std::optional<OptimizerConfig>(Momentum{.learning_rate = 0.1f, .nesterov = true}),
        std::optional<OptimizerConfig>(Adam{.learning_rate = 0.1f}),
        std::optional<OptimizerConfig>(Adagrad{.learning_rate = 0.1f, .initial_accumulator = 0.5f})}) {
    std::vector<float> weights;
    for (int64_t row = 0; row < table.rows; ++row) std::ranges::copy(FirstRow(table, row), std::back_inserter(weights));
    const int64_t count = std::ssize(weights);
    Optimizer optimizer = *Optimizer::Create(rule.value_or(Sgd{1.0f}), std::span(&count, 1));
    RowTable rows = *RowTable::Create(table, rule);
    support::Mutator random(11);
    for (int step = 0; step < 12; ++step) {
      // Three workers, each with rows of its own and of others, one of them without any at times.
      std::vector<Floats> pushes;
      std::map<int64_t, std::vector<float>> sums;
      for (int worker = 0; worker < 3; ++worker) {
        std::vector<int64_t> ids;
        for (int64_t id = static_cast<int64_t>(random.Below(9)); id < 40;
             id += 1 + static_cast<int64_t>(random.Below(20))) {
          ids.push_back(id);
        }
        if (worker == step % 4) ids.clear();
        std::vector<float> gradients(ids.size() * 5);
        for (float& value : gradients) value = static_cast<float>(random.Below(1000)) / 500 - 1;
        for (size_t i = 0; i < gradients.size(); ++i) {
          const auto [sum, first] = sums.try_emplace(ids[i / 5], std::vector<float>(5, -0.0f));
          sum->second[i % 5] += gradients[i];
        }
        pushes.push_back((*PackRows(table, 1, ids, gradients))[0]);
      }
      std::vector<int64_t> ids;
      std::vector<float> means;
      for (const auto& [id, sum] : sums) {
        ids.push_back(id);
        for (const float value : sum) means.push_back((rule ? 1.0f : -1.0f) * (value * (1.0f / 3.0f)));
      }
      const float rate = rule ? 0.1f / static_cast<float>(1 + step) : 1.0f;
      ASSERT_THAT(optimizer.SetLearningRate(rate), IsOk());
      ASSERT_THAT(optimizer.StepRows(0, weights, table.rows, {ids, {means.data(), std::ssize(means), DType::kF32}}),
                  IsOk());
      std::vector<std::span<const float>> spans;
      for (const Floats& push : pushes) spans.push_back(push.span());
      rows.Apply(spans, rate);
      if (step == 6) {
        const std::string saved = rows.Save();
        RowTable restored = *RowTable::Create(table, rule);
        ASSERT_THAT(restored.Restore(AsBytes(saved)), IsOk());
        for (size_t cut = 0; cut < saved.size(); cut += 3) {
          RowTable half = *RowTable::Create(table, rule);
          EXPECT_THAT(half.Restore(AsBytes(saved).first(cut)), MatchesStatus(absl::StatusCode::kDataLoss, "words"));
        }
        EXPECT_EQ(restored.Save(), saved);
        rows = std::move(restored);
      }
    }
    std::vector<int64_t> all(60);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    std::vector<float> values(weights.size());
    rows.Read(std::as_bytes(std::span(all)), values);
    EXPECT_EQ(values, weights);
    EXPECT_LE(rows.touched(), 40u);
  }
  EXPECT_FALSE(RowTable::Create(table, Adam{.beta1 = 2}).ok());
}

class Heard final : public Network {
 public:
  void Send(int, const Message& message) override {
    if (message.kind == Kind::kRows) rows.push_back(message.to);
  }
  std::vector<uint64_t> rows;  // for which life
};

TEST(ServerRowsTest, ALaterLifeGetsNoAnswersToQuestionsOfTheOneBefore) {
  const Table tables[] = {Words(9, 1)};
  const Layout layout = *Layout::Create({}, 1, kPartitionBytes, tables);
  ManualClock clock;
  Heard network;
  MemoryDisk disk;
  auto server = *Server::Start({.epoch = 1, .rule = std::nullopt, .workers = 2}, layout, clock, network, disk);
  const auto hello = [&](int worker, uint64_t life) {
    server->Receive(worker, {.kind = Kind::kHello,
                             .epoch = 1,
                             .incarnation = life,
                             .layout = layout.fingerprint(),
                             .flag = true,
                             .next = {0}});
  };
  const auto push = [&](int worker) {
    const Floats none = NoRows();
    server->Receive(worker, {.kind = Kind::kPush, .epoch = 1, .incarnation = 1, .values = none.bytes()});
  };
  const auto ask = [&](uint64_t life, int64_t id) {
    const Bytes ids = std::as_bytes(std::span(&id, 1));
    server->Receive(0, {.kind = Kind::kPullRows, .epoch = 1, .incarnation = life, .clock = 1, .values = ids});
  };
  hello(0, 1);
  hello(1, 1);
  push(0);
  ask(1, 4);
  EXPECT_TRUE(network.rows.empty()) << "worker 1 has not pushed";
  hello(0, 2);
  push(1);
  EXPECT_TRUE(network.rows.empty());
  ask(2, 9);
  EXPECT_TRUE(network.rows.empty()) << "there is no row 9";
  ask(2, 5);
  EXPECT_EQ(network.rows, std::vector<uint64_t>{2});
}

}  // namespace
}  // namespace gyre::ps
