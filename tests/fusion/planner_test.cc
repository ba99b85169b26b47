#include "fusion/planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/need_planner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gyre::fusion {
namespace {

struct Case {
  std::vector<TensorInfo> tensors = {};
  std::vector<double> ready = {};
  CostModel model = {};

  double Uncovered(const Plan& plan) const { return UncoveredSeconds(plan, tensors, ready, model); }
  Plan ByCost() const { return PlanByCost(tensors, ready, model); }
};

// Random sizes, times in no order of the indices, costs from "alpha is all" to "bytes are all".
Case Random(std::mt19937_64& random, size_t tensors, const std::vector<DType>& dtypes) {
  const auto upTo = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
  Case one;
  const double pace = upTo(2e-3);
  for (size_t t = 0; t < tensors; ++t) {
    const auto count = static_cast<int64_t>(upTo(1) < 0.1 ? 0 : std::pow(10.0, upTo(6)));
    one.tensors.push_back({absl::StrCat("t", t), count, dtypes[random() % dtypes.size()]});
    one.ready.push_back(upTo(pace));
  }
  one.model = {.seconds_per_bucket = upTo(1) < 0.2 ? 0 : std::pow(10.0, -3 - upTo(3)),
               .seconds_per_byte = std::pow(10.0, -8 - upTo(2))};
  return one;
}

// The least uncovered time of all 2^(n-1) ways to put borders into the order of readiness, and the fewest borders
// within `tolerance` of it.
struct Best {
  double uncovered = std::numeric_limits<double>::infinity();
  int borders = 0;
};

Plan WithBorders(const Case& one, const std::vector<int>& order, unsigned borders) {
  Plan plan;
  std::vector<std::pair<size_t, std::vector<int>>> open;  // the position of the last tensor, and all of them
  for (size_t position = 0; position < order.size(); ++position) {
    const DType dtype = one.tensors[static_cast<size_t>(order[position])].dtype;
    const auto same = std::ranges::find_if(open, [&](const auto& bucket) {
      return one.tensors[static_cast<size_t>(bucket.second.front())].dtype == dtype;
    });
    auto& bucket = same == open.end() ? open.emplace_back() : *same;
    bucket.first = position;
    bucket.second.push_back(order[position]);
    if ((borders >> position & 1) == 0 && position + 1 < order.size()) continue;
    std::ranges::sort(open);
    for (auto& [last, members] : open) plan.buckets.push_back(MakeBucket(one.tensors, members));
    open.clear();
  }
  return plan;
}

Best BruteForce(const Case& one, double tolerance) {
  std::vector<int> order(one.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int t) { return one.ready[static_cast<size_t>(t)]; });
  std::vector<Best> all;
  for (unsigned borders = 0; borders < 1U << (order.size() - 1); ++borders) {
    all.push_back({one.Uncovered(WithBorders(one, order, borders)), __builtin_popcount(borders)});
  }
  Best best = *std::ranges::min_element(all, {}, &Best::uncovered);
  for (const Best& each : all) {
    if (each.uncovered <= best.uncovered * (1 + tolerance)) best.borders = std::min(best.borders, each.borders);
  }
  return best;
}

// Every tensor once, one dtype a bucket.
void ExpectWhole(const Case& one, const Plan& plan) {
  std::multiset<int> seen;
  for (const Bucket& bucket : plan.buckets) {
    ASSERT_FALSE(bucket.tensors.empty());
    EXPECT_EQ(bucket, MakeBucket(one.tensors, bucket.tensors));
    for (const int tensor : bucket.tensors) {
      seen.insert(tensor);
      EXPECT_EQ(one.tensors[static_cast<size_t>(tensor)].dtype, bucket.dtype);
    }
  }
  ASSERT_EQ(seen.size(), one.tensors.size());
  EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), one.tensors.size());
}

TEST(PlannerTest, NoPlanIsBetterAndNoneAsGoodHasFewerBuckets) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 400; ++round) {
    const Case one = Random(random, 1 + random() % 9, {DType::kF32});
    const Plan plan = one.ByCost();
    ExpectWhole(one, plan);
    const Best best = BruteForce(one, 0.01);
    EXPECT_LE(one.Uncovered(plan), best.uncovered * 1.01 + 1e-12) << round;
    // Equal but for rounding: either may be taken.
    const Best wider = BruteForce(one, 0.0100001), narrower = BruteForce(one, 0.0099999);
    EXPECT_GE(std::ssize(plan.buckets), wider.borders + 1) << round;
    EXPECT_LE(std::ssize(plan.buckets), narrower.borders + 1) << round;
  }
}

TEST(PlannerTest, SeveralDtypesBetweenTheSameBorders) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 200; ++round) {
    const Case one = Random(random, 1 + random() % 8, {DType::kF32, DType::kBF16, DType::kF64});
    const Plan plan = one.ByCost();
    ExpectWhole(one, plan);
    EXPECT_LE(one.Uncovered(plan), BruteForce(one, 0).uncovered * 1.01 + 1e-12) << round;
  }
}

TEST(PlannerTest, NeverWorseThanBucketsBySize) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    const Case one = Random(random, 100, {DType::kF32});
    std::vector<int> order(one.tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int t) { return one.ready[static_cast<size_t>(t)]; });
    const double uncovered = one.Uncovered(one.ByCost());
    for (const int64_t bytes : {1LL, 1LL << 16, 1LL << 20, 25LL << 20, 1LL << 30}) {
      EXPECT_LE(uncovered, one.Uncovered(PlanBySize(one.tensors, order, bytes)) * 1.01 + 1e-12)
          << round << " " << bytes;
    }
  }
}

Case Even(size_t tensors, int64_t count, double pace) {
  Case one{.model = {.seconds_per_bucket = 1e-4, .seconds_per_byte = 1e-9}};
  for (size_t t = 0; t < tensors; ++t) {
    one.tensors.push_back({absl::StrCat("t", t), count, DType::kF32});
    one.ready.push_back(pace * static_cast<double>(t));
  }
  return one;
}

TEST(PlannerTest, WhatIsReadyAtOnceTravelsAtOnce) {
  EXPECT_EQ(Even(50, 1000, 0).ByCost().buckets.size(), 1);
}

// Computing covers twice the communication: only the last tensor is uncovered, and few buckets carry the others.
TEST(PlannerTest, TheLastBucketIsSmall) {
  const Case one = Even(100, 250'000, 2e-3);  // 1 ms each to send
  const Plan plan = one.ByCost();
  EXPECT_EQ(plan.buckets.back().tensors, std::vector<int>{99});
  EXPECT_LE(plan.buckets.size(), 9) << "halves, quarters, ... of what is left";
  EXPECT_NEAR(one.Uncovered(plan), 1.1e-3, 0.02e-3);
}

// One bucket must wait for all tensors; with nothing but bytes to pay for, each goes as soon as it can.
TEST(PlannerTest, ABoundNetworkIsKeptBusy) {
  Case one = Even(40, 250'000, 0.5e-3);  // half as long to compute as to send
  one.model.seconds_per_bucket = 1e-6;
  const double total = 40 * 1e-3, computing = 39 * 0.5e-3;
  EXPECT_NEAR(one.Uncovered(one.ByCost()), total - computing, 0.02 * (total - computing));
}

TEST(PlannerTest, CostsAreFittedByALine) {
  const CostModel line = FitCost(std::vector<CostSample>{{1000, 3e-3}, {2000, 9e-3}, {5000, 7e-3}});
  EXPECT_DOUBLE_EQ(line.seconds_per_byte, 1e-6);
  EXPECT_DOUBLE_EQ(line.seconds_per_bucket, 2e-3);
  const CostModel one = FitCost(std::vector<CostSample>{{1000, 3e-3}});
  EXPECT_EQ(one.seconds_per_byte, 0);
  EXPECT_EQ(one.seconds_per_bucket, 3e-3);
  const CostModel falling = FitCost(std::vector<CostSample>{{1000, 3e-3}, {2000, 1e-3}});
  EXPECT_EQ(falling.seconds_per_byte, 0);
  EXPECT_EQ(falling.seconds_per_bucket, 3e-3);
  const CostModel steep = FitCost(std::vector<CostSample>{{1000, 1e-6}, {2000, 1e-3}});
  EXPECT_EQ(steep.seconds_per_bucket, 0);
}

TEST(PlannerTest, NothingOneAndNoElements) {
  EXPECT_TRUE(Case().ByCost().buckets.empty());
  EXPECT_EQ(Case().Uncovered({}), 0);
  EXPECT_EQ(Even(1, 0, 0).ByCost().buckets.size(), 1);
  Case free = Even(5, 0, 1);
  free.model = {};
  EXPECT_EQ(free.ByCost().buckets.size(), 1);
}

TEST(PlannerTest, OnlyDifferencesOfTimesMatter) {
  std::mt19937_64 random(8);
  Case one = Random(random, 30, {DType::kF32, DType::kF16});
  const Plan plan = one.ByCost();
  EXPECT_EQ(plan, one.ByCost());
  for (double& ready : one.ready) ready -= 100;
  const Plan shifted = one.ByCost();
  EXPECT_EQ(shifted.buckets.size(), plan.buckets.size());
}

TEST(PlannerTest, NoMoreBytesBetweenBordersThanAllowed) {
  std::mt19937_64 random(10);
  for (int round = 0; round < 50; ++round) {
    const Case one = Random(random, 1 + random() % 40, {DType::kF32});
    const auto most = static_cast<int64_t>(1 + random() % 3'000'000);
    const Plan plan = PlanByCost(one.tensors, one.ready, one.model, most);
    ExpectWhole(one, plan);
    for (const Bucket& bucket : plan.buckets) {
      EXPECT_TRUE(bucket.bytes() <= most || bucket.tensors.size() == 1) << round;
    }
  }
  const Case hidden = Even(100, 250'000, 2e-3);  // as above: 1 MB each
  const Plan plan = PlanByCost(hidden.tensors, hidden.ready, hidden.model, 8'001'000);
  EXPECT_NEAR(hidden.Uncovered(plan), 1.1e-3, 0.02e-3);
  EXPECT_LE(plan.buckets.size(), 16) << "13 that are full, and a few small ones";
}

// The computation covers the communication; twice that it does not, and then the last bucket's size would not
// matter. It is small all the same. And what could all travel late begins early.
TEST(PlannerTest, CautionDoesNotLeaveMuchForTheEnd) {
  Case one = Even(100, 250'000, 1.4e-3);  // 1 ms each to send
  const Plan plan = PlanCautiously(one.tensors, one.ready, one.model);
  EXPECT_LE(plan.buckets.back().tensors.size(), 2u);
  EXPECT_LE(one.Uncovered(plan), 3e-3);
  one.ready.back() = 1;
  const Plan early = PlanCautiously(one.tensors, one.ready, one.model);
  EXPECT_EQ(early.buckets.back().tensors, std::vector<int>{99});
  EXPECT_GE(early.buckets.size(), 12u) << "of 8 MiB at most";
}

TEST(PlannerTest, CoarserAndFiner) {
  const Case one = Even(100, 250'000, 2e-3);  // 1 ms each to send
  size_t before = 101;
  for (const double grain : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    const Plan plan = PlanCautiously(one.tensors, one.ready, one.model, grain);
    ExpectWhole(one, plan);
    EXPECT_LT(plan.buckets.size(), before) << grain;
    before = plan.buckets.size();
  }
  EXPECT_EQ(PlanCautiously(one.tensors, one.ready, one.model, 1), PlanCautiously(one.tensors, one.ready, one.model));
}

TEST(PlannerTest, ManyTensors) {
  std::mt19937_64 random(9);
  const Case one = Random(random, 5000, {DType::kF32, DType::kBF16});
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = one.ByCost();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  ExpectWhole(one, plan);
}

// A large gradient is there first and needed last, as of VGG's first dense layer; 49 small ones follow, of which the
// last is needed first.
struct Needed : Case {
  std::vector<double> need = {};

  double Lost(const Plan& plan) const { return LostSeconds(plan, ready, need, model); }
};

Needed LargeFirst(int64_t large, double pace) {
  Needed one;
  for (int t = 0; t < 50; ++t) {
    one.tensors.push_back({absl::StrCat("t", t), t == 0 ? large : 50'000, DType::kF32});
    one.ready.push_back(t * pace);
    one.need.push_back((49 + (49 - t) / 2.0) * pace);
  }
  one.model = {.seconds_per_bucket = 1e-4, .seconds_per_byte = 1e-8};
  return one;
}

TEST(PlanByNeed, WhatIsNeededFirstOvertakesALargeOne) {
  const Needed one = LargeFirst(25'000'000, 5e-3);  // a second to send, 2 ms the others, in 250 ms of backward pass
  const Plan by_readiness = PlanCautiously(one.tensors, one.ready, one.model);
  EXPECT_TRUE(by_readiness.turns.empty());
  EXPECT_NEAR(one.Lost(by_readiness), 1.1 - 0.25, 0.05) << "the forward pass waits for nearly all";
  const Plan plan = PlanByNeed(one.tensors, one.ready, one.need, one.model);
  ExpectWhole(one, plan);
  EXPECT_TRUE(HasRightTurns(plan));
  EXPECT_LT(one.Lost(plan), 1.1 - 0.37 + 0.05) << "only the end of the forward pass does, for the large one";
  ASSERT_GT(plan.turns.size(), plan.buckets.size());
  const auto bucket_of = [&](int tensor) {
    return std::ranges::find_if(plan.buckets,
                                [&](const Bucket& each) { return std::ranges::count(each.tensors, tensor); }) -
           plan.buckets.begin();
  };
  EXPECT_EQ(plan.turns.front().bucket, bucket_of(0)) << "there is nothing else to send";
  EXPECT_EQ(plan.turns.back().bucket, bucket_of(0));
  EXPECT_EQ(FromText(ToText({one.tensors, plan})).value(), (SavedPlan{one.tensors, plan}));
}

// Small buckets cost nothing more here, for all of them are sent behind what is computed.
TEST(PlanByNeed, IsNotFinerThanItPays) {
  Needed one = LargeFirst(25'000'000, 5e-3);
  for (size_t t = 1; t < one.tensors.size(); ++t) one.need[t] += 2;
  one.need[0] += 2;
  one.tensors.push_back({"urgent", 1000, DType::kF32});
  one.ready.push_back(0.9);
  one.need.push_back(0.91);
  const Plan plan = PlanByNeed(one.tensors, one.ready, one.need, one.model);
  ExpectWhole(one, plan);
  EXPECT_FALSE(plan.turns.empty());
  EXPECT_LE(plan.buckets.size(), 6u);
}

TEST(PlanByNeed, ChangesNothingWhereItWinsNothing) {
  const Needed hidden = LargeFirst(50'000, 5e-3);  // all is there long before it is needed
  EXPECT_EQ(PlanByNeed(hidden.tensors, hidden.ready, hidden.need, hidden.model),
            PlanCautiously(hidden.tensors, hidden.ready, hidden.model));
  EXPECT_TRUE(PlanByNeed({}, {}, {}, hidden.model).buckets.empty());
}

// What is lost at least, whatever the order: of all that is ready from some moment on and needed before another one,
// the last comes when all of it has been sent.
double LeastLost(const Needed& one) {
  double least = 0;
  for (const double from : one.ready) {
    for (const double to : one.need) {
      double seconds = 0;
      for (size_t t = 0; t < one.tensors.size(); ++t) {
        if (one.ready[t] < from || one.need[t] > to) continue;
        seconds += static_cast<double>(one.tensors[t].bytes()) * one.model.seconds_per_byte;
      }
      if (seconds > 0) least = std::max(least, from + seconds - to);
    }
  }
  return least;
}

TEST(PlanByNeed, IsSoundForRandomCases) {
  std::mt19937_64 random(12);
  int won = 0;
  for (int round = 0; round < 60; ++round) {
    Needed one{Random(random, 1 + random() % 40, {DType::kF32, DType::kBF16})};
    for (TensorInfo& tensor : one.tensors) tensor.count *= 1 + static_cast<int64_t>(random() % 100);
    const double last = *std::ranges::max_element(one.ready);
    for (const double ready : one.ready) one.need.push_back(last + (last - ready) * static_cast<double>(random() % 8));
    const Plan plan = PlanByNeed(one.tensors, one.ready, one.need, one.model);
    ExpectWhole(one, plan);
    EXPECT_TRUE(HasRightTurns(plan));
    EXPECT_LE(plan.turns.size(), 2 * plan.buckets.size());
    EXPECT_EQ(plan, PlanByNeed(one.tensors, one.ready, one.need, one.model));
    EXPECT_GE(one.Lost(plan), LeastLost(one) * (1 - 1e-9));
    const Plan by_readiness = PlanCautiously(one.tensors, one.ready, one.model);
    if (plan == by_readiness) continue;
    ++won;
    Needed twice = one;
    twice.model = {2 * one.model.seconds_per_bucket, 2 * one.model.seconds_per_byte};
    EXPECT_LT(one.Lost(plan) + twice.Lost(plan), one.Lost(by_readiness) + twice.Lost(by_readiness)) << round;
  }
  EXPECT_GT(won, 10);
}

}  // namespace
}  // namespace gyre::fusion
