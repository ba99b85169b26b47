// Results of all algorithms at 1,024 and 16,384 ranks, on a sample of elements: exact, of inputs that differ.
#include <optional>
#include <random>

#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/claims.h"
#include "collectives/schedule/sampler.h"
#include "collectives/schedule/steps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using support::IsOk;

constexpr uint64_t kSeed = 20261121;

uint64_t SumOf(int ranks, int block) {
  uint64_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += Sampler::Input(rank, block);
  return sum;
}

// Which blocks to look at, and at which ranks: at all, where all have it.
struct Sample {
  int block;
  std::vector<int> ranks;
};

std::vector<int> All(int ranks) {
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  return all;
}

class Samples : public testing::TestWithParam<Algorithm> {
 protected:
  static std::vector<Sample> Of(int ranks, int root, int count) {
    std::mt19937_64 random(kSeed);
    const auto any = [&](int below) { return static_cast<int>(random() % static_cast<uint64_t>(below)); };
    const Claim claim = GetParam().claim;
    const int blocks = GetParam().make(0, ranks, root).blocks;
    std::vector<Sample> samples;
    for (int i = 0; i < count; ++i) {
      const int rank = any(ranks), block = claim == ReduceScattered ? rank : any(blocks);
      if (claim == Exchanged) {
        samples.push_back({ranks + any(ranks), {rank}});
      } else if (claim == ReduceScattered || claim == Reduced) {
        samples.push_back({block, {claim == Reduced ? root : rank}});
      } else {
        samples.push_back({block, All(ranks)});
      }
    }
    return samples;
  }

  static uint64_t Expected(int ranks, int root, int rank, int block) {
    const Claim claim = GetParam().claim;
    if (claim == AllGathered) return Sampler::Input(block, block);
    if (claim == Broadcasted) return Sampler::Input(root, block);
    if (claim != Exchanged) return SumOf(ranks, block);
    const int from = block - ranks;
    return from == rank ? Sampler::Input(rank, block) : Sampler::Input(from, rank);
  }

  static void Check(int ranks, int count) {
    const int root = ranks / 3;
    const std::vector<Sample> samples = Of(ranks, root, count);
    std::vector<int> blocks;
    for (const Sample& sample : samples) blocks.push_back(sample.block);
    if (GetParam().claim == Exchanged) blocks.clear();  // a piece has other numbers elsewhere
    Sampler sampler([&](int rank) { return GetParam().make(rank, ranks, root); }, ranks, blocks);
    for (const Sample& sample : samples) {
      const uint64_t everywhere = Expected(ranks, root, sample.ranks[0], sample.block);
      for (const int rank : sample.ranks) {
        const auto value = sampler.ValueAt(rank, sample.block);
        ASSERT_THAT(value, IsOk());
        ASSERT_EQ(*value, everywhere) << ranks << " ranks: rank " << rank << ", block " << sample.block;
      }
    }
  }
};

TEST_P(Samples, At100And1024Ranks) {
  Check(100, 4);
  Check(THOROUGH || !GetParam().quadratic ? 1024 : 150, 4);
}

// Half a billion steps take seconds to make: of those who have so many, two.
TEST_P(Samples, At16384Ranks) {
  const bool many = GetParam().quadratic && GetParam().claim != Exchanged;
  const bool chosen = GetParam().name == "RingReduceScatter" || GetParam().name == "CirculantAllReduce";
  Check(!THOROUGH ? 200 : !many || chosen ? 16384 : 2048, 2);
}

// All but the barrier, which moves no data.
std::vector<Algorithm> Movers() {
  std::vector<Algorithm> movers = AllAlgorithms();
  std::erase_if(movers, [](const Algorithm& algorithm) { return algorithm.claim == AllHaveCome; });
  return movers;
}

INSTANTIATE_TEST_SUITE_P(Schedules, Samples, testing::ValuesIn(Movers()),
                         [](const auto& info) { return info.param.name; });

// The sampler's own tests: schedules with one thing wrong.
class Mistakes : public testing::Test {
 protected:
  static constexpr int kRanks = 64;

  static Algorithm Named(const std::string& name) {
    for (const Algorithm& algorithm : AllAlgorithms()) {
      if (algorithm.name == name) return algorithm;
    }
    ADD_FAILURE() << "no algorithm " << name;
    return {};
  }

  // Whether rank 7's block 5 is still the sum of all, or rank 5's, where `change` was made to the schedules.
  static bool IsRight(const std::string& name, uint64_t expected,
                      const std::function<void(int rank, Schedule& schedule)>& change) {
    const Algorithm algorithm = Named(name);
    Sampler sampler(
        [&](int rank) {
          Schedule schedule = algorithm.make(rank, kRanks, 0);
          change(rank, schedule);
          return schedule;
        },
        kRanks, algorithm.meeting == Meeting::kSameBlock ? std::vector<int>{5} : std::vector<int>{});
    const auto value = sampler.ValueAt(7, algorithm.meeting == Meeting::kSameBlock ? 5 : kRanks + 5);
    return value.ok() && *value == expected;
  }

  static Step* FirstOn(Schedule& schedule, int block, Step::Kind kind) {
    for (Step& step : schedule.steps) {
      if (step.block == block && step.kind == kind) return &step;
    }
    return nullptr;
  }
};

TEST_F(Mistakes, AreSeen) {
  const uint64_t sum = SumOf(kRanks, 5);
  for (const char* const name : {"RingAllReduce", "CirculantAllReduce", "HalvingDoublingAllReduce"}) {
    EXPECT_TRUE(IsRight(name, sum, [](int, Schedule&) {})) << name;
    int ranks = 0;
    for (int where = 0; where < kRanks; ++where) {
      // Of those that pass on what they have reduced.
      Schedule own = Named(name).make(where, kRanks, 0);
      if (FirstOn(own, 5, Step::Kind::kReceiveReduce) == nullptr || where == 5) continue;
      ++ranks;
      const auto changed = [&](Step::Kind kind, const std::function<void(Step&)>& change) {
        return !IsRight(name, sum, [&](int rank, Schedule& schedule) {
          if (rank == where) change(*FirstOn(schedule, 5, kind));
        });
      };
      EXPECT_TRUE(changed(Step::Kind::kReceiveReduce, [](Step& step) { step.kind = Step::Kind::kReceive; }))
          << name << ": " << where << " forgets what it had itself";
      EXPECT_TRUE(changed(Step::Kind::kSend, [](Step& step) { step.block = 6; }))
          << name << ": " << where << " sends another block";
      EXPECT_TRUE(changed(Step::Kind::kReceiveReduce, [&](Step& step) { step.peer = Wrapped(step.peer + 2, kRanks); }))
          << name << ": " << where << " takes it from somebody else";
    }
    EXPECT_GE(ranks, kRanks / 2 - 1) << name;
  }
}

// All fit each other, and yet a source is wrong.
TEST_F(Mistakes, ThatFitEachOtherAreSeen) {
  const uint64_t sum = SumOf(kRanks, 0);
  for (const int distance : {1, 16}) {
    Sampler sampler(
        [&](int rank) {
          Schedule schedule = Named("RecursiveDoublingAllReduce").make(rank, kRanks, 0);
          for (Step& step : schedule.steps) {
            if ((step.peer ^ rank) == distance) step.peer = rank ^ (2 * distance);  // twice with the same partner
          }
          return schedule;
        },
        kRanks, {0});
    const auto value = sampler.ValueAt(7, 0);
    ASSERT_THAT(value, IsOk());
    EXPECT_NE(*value, sum);
  }
  for (const char* const name : {"PairwiseAllToAll", "BruckAllToAll"}) {
    const uint64_t piece = Sampler::Input(5, 7);
    EXPECT_TRUE(IsRight(name, piece, [](int, Schedule&) {})) << name;
    EXPECT_FALSE(IsRight(name, piece, [](int rank, Schedule& schedule) {
      Step* const step = FirstOn(schedule, 7, Step::Kind::kSend);
      if (rank == 5) step->block = 8;
    })) << name;
  }
}

TEST_F(Mistakes, CirclesAreSeen) {
  Sampler sampler(
      [](int rank) {
        return Schedule{.blocks = 1, .steps = {ReceiveFrom(1 - rank, 0), SendTo(1 - rank, 0)}};
      },
      2, {0});
  EXPECT_THAT(std::string(sampler.ValueAt(0, 0).status().message()), testing::HasSubstr("needs what comes of"));
}

}  // namespace
}  // namespace gyre::internal
