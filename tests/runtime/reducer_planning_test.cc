// Plans of a GradientReducer: made by cost, tried, and what a step says of who was waited for.
#include "runtime/reducer_planning.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fusion/need_planner.h"
#include "fusion/plan.h"
#include "fusion/planner.h"
#include "fusion/tuner.h"
#include "runtime/reducer_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::JoinJob;
using support::MatchesStatus;
using support::Parameter;
using support::Rank;
using support::RunThreads;
using support::Trainer;

// Each rank is last with other gradients.
TEST(ReducerPlanning, IsForTheLastRankAndAlikeOnAll) {
  RunThreads(3, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    std::vector<fusion::TensorInfo> tensors;
    std::vector<double> ready, last, need;
    for (int t = 0; t < 30; ++t) {
      tensors.push_back({absl::StrCat("t", t), 10'000 * (t % 4), t % 5 == 0 ? DType::kBF16 : DType::kF32});
      last.push_back(t * 1e-3);
      ready.push_back(last.back() - (t % 3 == rank ? 0 : 5e-3));
      need.push_back(0.1 - last.back() - (t % 3 == rank ? 0 : 1e-3));
    }
    const fusion::CostModel cost{.seconds_per_bucket = 1e-4, .seconds_per_byte = 1e-7};
    // What another rank than 0 believes to be the costs makes no difference.
    const std::vector<double> grains = {0.5, 1};
    const auto plan = [&](internal::PlanTimes& times) {
      return internal::PlanTogether(runtime->world(), tensors, times, rank == 0 ? cost : fusion::CostModel(), grains,
                                    {});
    };
    internal::PlanTimes together{.ready = ready, .need = std::vector<double>(30, 0.1)};
    const auto plans = plan(together);
    ASSERT_THAT(plans, IsOk());
    EXPECT_THAT(*plans,
                testing::ElementsAre(PlanCautiously(tensors, last, cost, 0.5), PlanCautiously(tensors, last, cost)));
    EXPECT_GT(plans->back().buckets.size(), 3u);
    EXPECT_EQ(together.ready, last);

    internal::PlanTimes one_by_one{.ready = ready, .need = need};
    const auto by_need = plan(one_by_one);
    ASSERT_THAT(by_need, IsOk());
    for (int t = 0; t < 30; ++t) EXPECT_DOUBLE_EQ(one_by_one.need[static_cast<size_t>(t)], 0.1 - t * 1e-3);
    EXPECT_THAT(*by_need, testing::ElementsAre(PlanByNeed(tensors, last, one_by_one.need, cost, 0.5),
                                               PlanByNeed(tensors, last, one_by_one.need, cost)));
    EXPECT_FALSE(by_need->back().turns.empty());

    for (const std::vector<int>& members : {std::vector<int>{1, 1}, {0, 1}, {1}}) {
      fusion::Plan wrong{.buckets = {{.tensors = members}}};
      EXPECT_THAT(internal::AdoptPlan(runtime->world(), tensors, wrong, {}),
                  MatchesStatus(StatusCode::kDataLoss, "rank 0"));
    }
    fusion::Plan half = by_need->back();
    half.turns.pop_back();
    EXPECT_THAT(internal::AdoptPlan(runtime->world(), tensors, half, {}),
                MatchesStatus(StatusCode::kDataLoss, "rank 0"));
  });
}

TEST(ReducerPlanning, CostsAreMeasuredOnZerosThatStay) {
  for (const int64_t elements : {0, 1, 5000, 3 << 20}) {
    RunThreads(2, [elements](const Rank& rank) {
      const auto runtime = JoinJob(rank);
      ASSERT_NE(runtime, nullptr);
      std::vector<float> scratch(static_cast<size_t>(elements));
      double dearest_byte = 0;
      for (int i = 0; i < 5; ++i) {  // where other work disturbs the smaller size, a byte may seem to cost nothing
        const auto cost = internal::MeasureCost(runtime->world(), scratch, {});
        ASSERT_THAT(cost, IsOk());
        EXPECT_GE(cost->seconds_per_bucket, 0);
        EXPECT_GT(cost->seconds_per_bucket + cost->seconds_per_byte, 0);
        dearest_byte = std::max(dearest_byte, cost->seconds_per_byte);
      }
      if (elements < 5000) {
        EXPECT_EQ(dearest_byte, 0) << "from one size";
      } else if (elements > 5000) {
        EXPECT_GT(dearest_byte, 0);
      }
      EXPECT_EQ(std::ranges::count(scratch, 0.0F), elements);
    });
  }
}

// The plan of five gradients whose last one is ready so much later than the others; the same on both ranks.
std::string PlanOfALateOne(std::chrono::milliseconds late) {
  std::vector<std::string> plans(2);
  RunThreads(2, [&](const Rank& rank) {
    Trainer trainer(rank, std::vector<Parameter>(5, {{10'000}}));
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum}), IsOk());
    for (int64_t step = 1; step <= 5; ++step) {
      for (size_t p = 0; p < 5; ++p) {
        if (p == 4 && step > 1) std::this_thread::sleep_for(late);  // computes
        ASSERT_THAT(trainer.Give(p, step, false), IsOk());
      }
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_TRUE(step > 4 || summary->buckets == 1) << step;
      for (size_t p = 0; p < 5; ++p) trainer.ExpectSum(trainer.shared(p), p, step, 1);
    }
    plans[static_cast<size_t>(rank.rank)] = trainer.reducer->plan();
  });
  EXPECT_EQ(plans[0], plans[1]);
  return plans[0];
}

// Tries plans until one stays: right results with each, the same one on all ranks, a message at the end of a turn and
// none in between. While it records, the last gradient is so much later than the others. Whether there were others to
// try: that is for what calls cost on the machine at that time.
bool TriesPlansAndSettles(std::chrono::milliseconds late) {
  constexpr int kTensors = 40, kMostSteps = 4 + 6 * 60;
  std::vector<std::string> plans(2);
  std::vector<size_t> bucketings(2);
  RunThreads(2, [&](const Rank& rank) {
    Trainer trainer(rank, std::vector<Parameter>(kTensors, {{65'001}}));  // 10 MB: finer plans have smaller buckets
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .tune = true}), IsOk());
    std::set<int> buckets;
    int64_t step = 1, messages = 0;
    for (; step <= kMostSteps && !trainer.reducer->planned(); ++step) {
      for (size_t p = 0; p < kTensors; ++p) {
        if (p == kTensors - 1 && step <= 4) std::this_thread::sleep_for(late);  // computes
        support::Store(trainer.shared(p), 0, static_cast<double>(rank.rank + step));
        support::Store(trainer.shared(p), 65'000, static_cast<double>(p));
        ASSERT_THAT(trainer.reducer->Ready(trainer.index[p]), IsOk());
      }
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      const bool turn_ends = step > 4 && (step - 4) % fusion::Tuner::kTurnSteps == 0;
      EXPECT_EQ(summary->control_messages, step == 4 ? 6 : turn_ends ? 1 : 0) << step;
      messages += summary->control_messages;
      if (step > 4) buckets.insert(summary->buckets);
      for (size_t p = 0; p < kTensors; ++p) {
        ASSERT_EQ(support::Load(trainer.shared(p), 0), 2 * step + 1) << step;
        ASSERT_EQ(support::Load(trainer.shared(p), 65'000), 2 * p) << step;
      }
    }
    EXPECT_TRUE(trainer.reducer->planned());
    EXPECT_EQ(messages >= 8, step > 5) << "turns of two plans at least, or none";
    plans[static_cast<size_t>(rank.rank)] = trainer.reducer->plan();
    bucketings[static_cast<size_t>(rank.rank)] = buckets.size();
  });
  EXPECT_EQ(plans[0], plans[1]);
  EXPECT_EQ(bucketings[0], bucketings[1]);
  return bucketings[0] >= 2;
}

// Whatever a call costs: with one of these times, plans for calls that cost a quarter to four times as much differ.
TEST(ReducerTuning, TriesPlansAndSettles) {
  for (const int late : {0, 1, 4, 16, 64, 256}) {
    if (TriesPlansAndSettles(std::chrono::milliseconds(late)) || HasFailure()) return;
  }
  FAIL() << "there was never more than one plan";
}

// Whether the two other ranks named rank `late`, or who waits for it, for about as long as it was late.
bool NameTheLateOne(std::vector<int> hosts, int late, std::chrono::milliseconds time, std::vector<int> expected) {
  std::vector<StepSummary> summaries(3);
  std::atomic<int> here = 0;
  RunThreads(3, [&](const Rank& rank) {
    Trainer trainer(rank, {{{1000}}, {{70'000}}});
    auto joined = hosts.empty() ? JoinJob(rank) : JoinJob(rank, JobOptions(rank, hosts));
    ASSERT_THAT(trainer.StartIn(std::move(joined), {.bucket_bytes = 64 << 10}), IsOk());
    if (rank.rank == late) {
      while (here.load() < 2) std::this_thread::yield();
      std::this_thread::sleep_for(time);  // computes
    }
    const auto begin = std::chrono::steady_clock::now();
    for (size_t p = 0; p < 2; ++p) ASSERT_THAT(trainer.Give(p, 1, false), IsOk());
    ++here;
    const auto summary = trainer.reducer->Wait();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    ASSERT_THAT(summary, IsOk());
    EXPECT_LE(summary->waited_seconds, taken.count());
    summaries[static_cast<size_t>(rank.rank)] = *summary;
  });
  bool named = true;
  for (size_t r = 0; r < 3; ++r) {
    const StepSummary& one = summaries[r];
    EXPECT_EQ(one.waiting_for < 0, one.waited_seconds == 0);
    if (expected[r] < 0) continue;
    named = named && one.waiting_for == expected[r] && one.waited_seconds > 0.5e-3 * static_cast<double>(time.count());
  }
  return named;
}

// On a machine so busy that another one came later, it is given more time.
TEST(ReducerWaits, NameWhoCameLast) {
  const auto named = [](std::vector<int> hosts, int late, std::vector<int> expected) {
    for (int ms = 20; ms < 5000; ms *= 4) {
      if (NameTheLateOne(hosts, late, std::chrono::milliseconds(ms), expected)) return true;
    }
    return false;
  };
  EXPECT_TRUE(named({}, 1, {1, -1, 1}));
  EXPECT_TRUE(named({}, 0, {-1, 0, 0}));
  EXPECT_TRUE(named({2, 1}, 2, {2, -1, -1}));
  EXPECT_TRUE(named({2, 1}, 1, {1, -1, 0})) << "rank 2 waits for rank 0, which waits for rank 1";
}

// It is ready later by more time than the others take to be reduced. On a machine so busy that this is not so, it is
// given more.
TEST(ReducerPlanning, WhatIsReadyLastTravelsAlone) {
  std::vector<int> last;
  for (int late = 50; last.size() != 1 && late <= 3200; late *= 4) {
    const auto plan = fusion::FromText(PlanOfALateOne(std::chrono::milliseconds(late)));
    ASSERT_THAT(plan, IsOk());
    last = plan->plan.buckets.back().tensors;
  }
  EXPECT_EQ(last, std::vector<int>{4});
}

}  // namespace
}  // namespace gyre
