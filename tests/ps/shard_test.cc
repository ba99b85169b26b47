#include "ps/shard.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ps/wire.h"
#include "support/status_matchers.h"

namespace gyre::ps {
namespace {

using support::IsOk;
using support::MatchesStatus;
using Outcome = Shard::Outcome;

class ShardTest : public testing::Test {
 protected:
  static Shard Make(Mode mode, uint64_t bound = 0, const Rule& rule = std::nullopt) {
    Shard shard = *Shard::Create(2, {mode, bound}, rule, {});
    const std::array<float, 2> zeros = {};
    EXPECT_TRUE(shard.Initialize(std::as_bytes(std::span(zeros))));
    return shard;
  }
  Outcome Push(Shard& shard, int worker, uint64_t from, uint64_t sequence, float value) {
    const std::array<float, 2> gradient = {value, -value};
    return shard.Push(worker, from, sequence, {std::as_bytes(std::span(gradient))}, applied_);
  }

  std::vector<std::pair<int, uint64_t>> log_;
  Shard::Applied applied_ = [this](int worker, uint64_t step) { log_.emplace_back(worker, step); };
};

TEST_F(ShardTest, EachPushOnceAndInOrder) {
  Shard shard = Make(Mode::kAsynchronous);
  EXPECT_EQ(Push(shard, 4, 1, 1, 100), Outcome::kGap);
  EXPECT_EQ(Push(shard, 4, 0, 0, 1), Outcome::kTaken);
  EXPECT_EQ(Push(shard, 4, 0, 0, 1), Outcome::kKnown);
  EXPECT_EQ(Push(shard, 4, 1, 7, 2), Outcome::kTaken) << "says that 1 to 6 do not exist";
  EXPECT_EQ(Push(shard, 4, 3, 3, 100), Outcome::kKnown);
  EXPECT_EQ(Push(shard, 2, 0, 3, 10), Outcome::kTaken);
  EXPECT_EQ(shard.values()[0], 13);
  EXPECT_EQ(shard.values()[1], -13);
  EXPECT_EQ(shard.Next(4), 8u);
  shard.Forget(4, 20);
  EXPECT_EQ(Push(shard, 4, 8, 8, 100), Outcome::kKnown);
  EXPECT_EQ(log_, (std::vector<std::pair<int, uint64_t>>{{4, 0}, {4, 7}, {2, 3}}));
}

TEST_F(ShardTest, PushesThatDoNotFitChangeNothing) {
  Shard shard = Make(Mode::kAsynchronous);
  EXPECT_EQ(shard.Push(0, 0, 0, {}, applied_), Outcome::kGap);
  const std::array<float, 3> three = {1, 2, 3};
  EXPECT_EQ(shard.Push(0, 0, 0, {std::as_bytes(std::span(three))}, applied_), Outcome::kGap);
  EXPECT_FALSE(shard.Initialize(std::as_bytes(std::span(three))));
  EXPECT_EQ(shard.Next(0), 0u);
  Shard empty = *Shard::Create(2, {}, std::nullopt, {});
  EXPECT_EQ(Push(empty, 0, 0, 0, 1), Outcome::kGap) << "no values yet";
  EXPECT_FALSE(empty.Serves(0, 0, 0));
}

TEST_F(ShardTest, SynchronousStepsAreMeansOfWhoBelongs) {
  Shard shard = Make(Mode::kSynchronous);
  const std::vector<int> both = {0, 1};
  EXPECT_TRUE(shard.Serves(0, 0, shard.Clock(both)));
  Push(shard, 1, 0, 0, 3);
  shard.Advance(both, applied_);
  EXPECT_EQ(shard.version(), 0u);
  EXPECT_FALSE(shard.Serves(1, 1, shard.Clock(both)));
  Push(shard, 0, 0, 0, 1);
  Push(shard, 0, 1, 1, 8);  // ahead
  shard.Advance(both, applied_);
  EXPECT_EQ(shard.version(), 1u);
  EXPECT_EQ(shard.values()[0], 2);
  EXPECT_TRUE(shard.Serves(1, 1, shard.Clock(both)));
  shard.Advance(std::vector<int>{0}, applied_);  // 1 has died
  EXPECT_EQ(shard.version(), 2u);
  EXPECT_EQ(shard.values()[0], 10);
  // It comes back, and is awaited where the other is; what it pushes for the past is taken and counts for nothing.
  shard.Raise(1, shard.FloorFor(1, std::vector<int>{0}));
  EXPECT_EQ(shard.ClockOf(1), 2u);
  EXPECT_EQ(Push(shard, 1, 1, 1, 100), Outcome::kKnown);
  Push(shard, 0, 2, 2, 1);
  shard.Advance(both, applied_);
  EXPECT_EQ(shard.version(), 2u);
  Push(shard, 1, 2, 2, 3);
  shard.Advance(both, applied_);
  EXPECT_EQ(shard.values()[0], 12);
  EXPECT_EQ(log_, (std::vector<std::pair<int, uint64_t>>{{0, 0}, {1, 0}, {0, 1}, {0, 2}, {1, 2}}));
}

TEST_F(ShardTest, NobodyCanMakeItHoldWithoutBound) {
  Shard shard = Make(Mode::kSynchronous);
  uint64_t step = 0;
  while (step < 10'000 && Push(shard, 0, step, step, 1) == Outcome::kTaken) ++step;
  EXPECT_LE(step, 256u);
  EXPECT_EQ(Push(shard, 0, 0, kMostSteps - 1, 1), Outcome::kGap);
}

TEST_F(ShardTest, StaleValuesWaitForTheSlowest) {
  Shard shard = Make(Mode::kStale, 2);
  const std::vector<int> both = {0, 1};
  for (uint64_t step = 0; step < 3; ++step) Push(shard, 0, step, step, 1);
  EXPECT_TRUE(shard.Serves(0, 2, shard.Clock(both)));
  EXPECT_FALSE(shard.Serves(0, 3, shard.Clock(both)));
  EXPECT_FALSE(shard.Serves(1, 1, shard.Clock(both))) << "its own push is not there";
  EXPECT_TRUE(shard.Serves(0, 3, shard.Clock(std::vector<int>{0}))) << "the dead are not waited for";
  Push(shard, 1, 0, 0, 1);
  EXPECT_TRUE(shard.Serves(0, 3, shard.Clock(both)));
}

TEST_F(ShardTest, SavedAndRestoredItGoesOnAlike) {
  for (const Rule& rule : {Rule(std::nullopt), Rule(Adam{}), Rule(Momentum{})}) {
    for (const Mode mode : {Mode::kSynchronous, Mode::kStale}) {
      Shard shard = Make(mode, 1, rule);
      const std::vector<int> both = {0, 1};
      for (uint64_t step = 0; step < 3; ++step) {
        for (const int worker : both) Push(shard, worker, step, step, static_cast<float>(worker) + 1);
        shard.Advance(both, applied_);
      }
      if (mode == Mode::kSynchronous) Push(shard, 1, 3, 3, 1);  // is held, and so not saved
      const std::string bytes = shard.Save();
      Shard other = *Shard::Create(2, {mode, 1}, rule, {});
      ASSERT_THAT(other.Restore(bytes), IsOk());
      EXPECT_EQ(other.Next(0), 3u);
      EXPECT_EQ(other.Next(1), 3u);
      EXPECT_EQ(other.Durable(1), 3u);
      if (mode != Mode::kSynchronous) Push(shard, 1, 3, 3, 1);
      for (Shard* one : {&shard, &other}) {
        if (one == &other) Push(other, 1, 3, 3, 1);
        Push(*one, 0, 3, 3, 5);
        one->Advance(both, applied_);
      }
      EXPECT_EQ(shard.values()[0], other.values()[0]);
      EXPECT_EQ(shard.values()[1], other.values()[1]);
      for (size_t size = 0; size < bytes.size(); ++size) {
        Shard cut = *Shard::Create(2, {mode, 1}, rule, {});
        EXPECT_FALSE(cut.Restore(bytes.substr(0, size)).ok());
      }
    }
  }
}

TEST_F(ShardTest, ARuleThatIsNoneIsRefused) {
  EXPECT_THAT(Shard::Create(2, {}, Sgd{.learning_rate = -1}, {}),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "learning_rate"));
}

}  // namespace
}  // namespace gyre::ps
