// Waiting for one gradient while others still travel, and plans by when each is needed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "fusion/plan.h"
#include "runtime/reducer_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;
using support::Parameter;
using support::PlanOf;
using support::Rank;
using support::RunThreads;
using support::Sliced;
using support::Trainer;

bool HalfInOwn(int rank, size_t parameter, int64_t step) {
  return (static_cast<size_t>(rank) + parameter + static_cast<size_t>(step)) % 2 == 0;
}

// Every result is right as soon as it was waited for, in orders that differ by rank and step.
void TrainByOne(Trainer& trainer, int64_t steps) {
  for (int64_t step = 1; step <= steps; ++step) {
    for (const size_t p : trainer.Shuffled()) {
      ASSERT_THAT(trainer.Give(p, step, HalfInOwn(trainer.rank, p, step)), IsOk());
    }
    for (const size_t p : trainer.Shuffled()) {
      if (step == 2 && p % 2 == 1) continue;  // leaves it to Wait
      const auto update = trainer.reducer->WaitFor(trainer.index[p]);
      ASSERT_THAT(update, IsOk());
      EXPECT_TRUE(*update);
      trainer.ExpectSum(HalfInOwn(trainer.rank, p, step) ? trainer.own(p) : trainer.shared(p), p, step, 1);
    }
    const auto summary = trainer.reducer->Wait();
    ASSERT_THAT(summary, IsOk());
    EXPECT_EQ(summary->step, step);
    for (size_t p = 0; p < trainer.parameters.size(); ++p) {
      trainer.ExpectSum(HalfInOwn(trainer.rank, p, step) ? trainer.own(p) : trainer.shared(p), p, step, 1);
    }
  }
}

TEST(ReducerWaitFor, GivesEachResultInAnyOrder) {
  for (const int ranks : {1, 2, 3}) {
    RunThreads(ranks, [](const Rank& rank) {
      Trainer trainer(rank, support::MixedParameters());
      ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .bucket_bytes = 64 << 10}), IsOk());
      TrainByOne(trainer, 4);
    });
  }
}

TEST(ReducerWaitFor, GivesWhatTravelledInSlices) {
  const std::vector<Parameter> parameters = {{{200'003}}, {{1000}}, {{0}}};
  for (const std::vector<int>& hosts : {std::vector<int>{3}, {2, 1}, {1, 1, 1}}) {
    RunThreads(3, [&](const Rank& rank) {
      Trainer trainer(rank, parameters);
      const std::string plan = ToText(Sliced(parameters));
      ASSERT_THAT(trainer.StartIn(JoinJob(rank, JobOptions(rank, hosts)), {.op = ReduceOp::kSum, .plan = plan}),
                  IsOk());
      TrainByOne(trainer, 4);
      EXPECT_EQ(trainer.reducer->plan(), plan);
    });
  }
}

// The second gradient is given only after the first one's result is there. By this plan, in which each has a bucket of
// its own, and the first one the first turn, that need not be waited for.
TEST(ReducerWaitFor, DoesNotWaitForOthers) {
  const std::vector<Parameter> parameters = {{{1000}}, {{2000}}};
  for (const std::vector<int>& hosts : {std::vector<int>{2}, {1, 1}}) {
    RunThreads(2, [&](const Rank& rank) {
      Trainer trainer(rank, parameters);
      const std::string plan = ToText(PlanOf(parameters, 1));
      ASSERT_THAT(trainer.StartIn(JoinJob(rank, JobOptions(rank, hosts)), {.op = ReduceOp::kSum, .plan = plan}),
                  IsOk());
      for (int64_t step = 1; step <= 20; ++step) {
        for (size_t p = 0; p < 2; ++p) {
          ASSERT_THAT(trainer.Give(p, step, false), IsOk());
          ASSERT_THAT(trainer.reducer->WaitFor(trainer.index[p]), IsOk());
          trainer.ExpectSum(trainer.shared(p), p, step, 1);
        }
        ASSERT_THAT(trainer.reducer->Wait(), IsOk());
      }
    });
  }
}

// What is computed between two waits is nobody's lateness, however long it takes.
TEST(ReducerWaitFor, LateIsOnlyWhatIsWaitedFor) {
  const std::vector<Parameter> parameters = {{{1000}}, {{2000}}};
  RunThreads(1, [&](const Rank& rank) {
    Trainer trainer(rank, parameters);
    constexpr std::chrono::milliseconds kTimeout{100};
    ASSERT_THAT(trainer.Start({.plan = ToText(PlanOf(parameters, 1)), .timeout = kTimeout}), IsOk());
    ASSERT_THAT(trainer.Give(0, 1, false), IsOk());
    ASSERT_THAT(trainer.reducer->WaitFor(trainer.index[0]), IsOk());
    std::this_thread::sleep_for(3 * kTimeout);  // computes
    ASSERT_THAT(trainer.Give(1, 1, false), IsOk());
    ASSERT_THAT(trainer.reducer->WaitFor(trainer.index[1]), IsOk());
    ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    ASSERT_THAT(trainer.Give(0, 2, false), IsOk());
    ASSERT_THAT(trainer.reducer->WaitFor(trainer.index[0]), IsOk());
    std::this_thread::sleep_for(2 * kTimeout);  // computes
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(trainer.reducer->WaitFor(trainer.index[1]), MatchesStatus(StatusCode::kDeadlineExceeded, "layer1"));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kTimeout) << "a wait has all of its time";
  });
}

// Plans by need are for what travels as it is.
TEST(ReducerWaitFor, TurnsAreNotForCompressedGradients) {
  const std::vector<Parameter> parameters = {{{200'003, 1}}, {{1000}}, {{0}}};
  RunThreads(2, [&](const Rank& rank) {
    Trainer trainer(rank, parameters);
    EXPECT_THAT(trainer.Start({.plan = ToText(Sliced(parameters)), .compression = Int8{}, .always_compress = true}),
                MatchesStatus(StatusCode::kInvalidArgument, "turns"));
  });
}

TEST(ReducerWaitFor, TellsWhetherToUpdate) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, {{{1000}}, {{3}}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .max_norm = 1.0, .skip_non_finite = true, .accumulate = 2}),
                IsOk());
    for (const bool spoilt : {false, true}) {
      for (int micro = 0; micro < 2; ++micro) {
        for (size_t p = 0; p < 2; ++p) {
          const TensorView view = trainer.shared(p);
          for (int64_t i = 0; i < view.count; ++i) support::Store(view, i, 1);
          if (spoilt && rank == 1 && p == 1) support::Store(view, 2, std::numeric_limits<double>::infinity());
          ASSERT_THAT(trainer.reducer->Ready(trainer.index[p]), IsOk());
        }
        const auto update = trainer.reducer->WaitFor(trainer.index[0]);
        ASSERT_THAT(update, IsOk());
        EXPECT_EQ(*update, micro == 1 && !spoilt);
        const double clipped = 1 / std::sqrt(1003);
        if (*update) {
          EXPECT_NEAR(support::Load(trainer.shared(0), 999), clipped, 1e-6);
        }
        const auto summary = trainer.reducer->Wait();
        ASSERT_THAT(summary, IsOk());
        EXPECT_EQ(summary->reduced, micro == 1);
        EXPECT_EQ(summary->skipped, micro == 1 && spoilt);
        if (*update) {
          EXPECT_NEAR(support::Load(trainer.shared(1), 2), clipped, 1e-6) << "it is not scaled twice";
        }
      }
    }
  });
}

TEST(ReducerWaitFor, RowsAreThereWithTheRest) {
  RunThreads(2, [](const Rank& rank) {
    const auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    auto reducer = GradientReducer::Create(runtime->world(), {.op = ReduceOp::kSum, .bucket_bytes = 1});
    ASSERT_THAT(reducer, IsOk());
    const std::vector<int64_t> dense = {100}, table = {10, 2};
    ASSERT_THAT((*reducer)->Register("dense", dense), IsOk());
    ASSERT_THAT((*reducer)->RegisterRows("table", table), IsOk());
    ASSERT_THAT((*reducer)->Start(), IsOk());
    for (int step = 1; step <= 4; ++step) {
      ASSERT_THAT((*reducer)->Ready(0), IsOk());
      const std::vector<int64_t> rows = {rank.rank, 5};
      const std::vector<float> values = {1, 2, 3, static_cast<float>(step)};
      ASSERT_THAT((*reducer)->ReadyRows(1, rows, values), IsOk());
      const auto update = (*reducer)->WaitFor(1);
      ASSERT_THAT(update, IsOk());
      EXPECT_TRUE(*update);
      const RowsView result = (*reducer)->result_rows(1);
      EXPECT_THAT(std::vector<int64_t>(result.rows.begin(), result.rows.end()), testing::ElementsAre(0, 1, 5));
      EXPECT_EQ(static_cast<const float*>(result.values.data)[5], 2 * step);
      ASSERT_THAT((*reducer)->WaitFor(0), IsOk());
      ASSERT_THAT((*reducer)->Wait(), IsOk());
    }
  });
}

TEST(ReducerWaitFor, EndsWithTheStep) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, {{{1000}}, {{3}}});
    ASSERT_THAT(trainer.Start({.bucket_bytes = 1, .timeout = std::chrono::milliseconds(300)}), IsOk());
    EXPECT_THAT(trainer.reducer->WaitFor(2), MatchesStatus(StatusCode::kInvalidArgument, "no gradient 2"));
    ASSERT_THAT(trainer.Give(0, 1, false), IsOk());
    if (rank == 0) {
      ASSERT_THAT(trainer.Give(1, 1, false), IsOk());
    }
    const auto late = trainer.reducer->WaitFor(trainer.index[1]);
    EXPECT_FALSE(late.ok());
    EXPECT_THAT(std::string(late.status().message()), testing::HasSubstr("layer1"));
    EXPECT_THAT(trainer.reducer->Wait(), MatchesStatus(StatusCode::kFailedPrecondition, "layer1"));
  });
}

// The plan of a large gradient that is there early and needed late, and a small one that is there late and needed at
// once; the same on both ranks. `mebibytes`: of the large one.
fusion::SavedPlan PlanOfAnUrgentOne(int64_t mebibytes, bool priorities) {
  std::vector<std::string> plans(2);
  RunThreads(2, [&](const Rank& rank) {
    Trainer trainer(rank, {{{mebibytes << 18}}, {{1000}}});
    ASSERT_THAT(trainer.Start({.op = ReduceOp::kSum, .priorities = priorities}), IsOk());
    for (int64_t step = 1; step <= 6; ++step) {
      support::Store(trainer.shared(0), 0, static_cast<double>(rank + step));
      ASSERT_THAT(trainer.reducer->Ready(trainer.index[0]), IsOk());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // computes
      ASSERT_THAT(trainer.Give(1, step, false), IsOk());
      ASSERT_THAT(trainer.reducer->WaitFor(trainer.index[1]), IsOk());
      trainer.ExpectSum(trainer.shared(1), 1, step, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // computes
      ASSERT_THAT(trainer.reducer->WaitFor(trainer.index[0]), IsOk());
      EXPECT_EQ(support::Load(trainer.shared(0), 0), 2 * step + 1);
      const auto summary = trainer.reducer->Wait();
      ASSERT_THAT(summary, IsOk());
      EXPECT_EQ(summary->control_messages, step == 4 ? 2 : 0);
    }
    plans[static_cast<size_t>(rank.rank)] = trainer.reducer->plan();
  });
  EXPECT_EQ(plans[0], plans[1]);
  return fusion::FromText(plans[0]).value_or(fusion::SavedPlan{});
}

TEST(ReducerWaitFor, WhatIsNeededFirstOvertakes) {
  fusion::SavedPlan plan;
  for (int64_t mebibytes = 64; plan.plan.turns.empty() && mebibytes <= 128; mebibytes *= 2) {
    plan = PlanOfAnUrgentOne(mebibytes, true);
  }
  ASSERT_FALSE(plan.plan.turns.empty());
  const auto& buckets = plan.plan.buckets;
  EXPECT_EQ(buckets[static_cast<size_t>(plan.plan.turns.front().bucket)].tensors, std::vector<int>{0});
  EXPECT_EQ(buckets[static_cast<size_t>(plan.plan.turns.back().bucket)].tensors, std::vector<int>{0});
  EXPECT_GE(plan.plan.turns.size(), 3u);
  EXPECT_TRUE(PlanOfAnUrgentOne(64, false).plan.turns.empty());
}

}  // namespace
}  // namespace gyre
