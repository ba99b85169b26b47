#include "fusion/tuner.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace gyre::fusion {
namespace {

// What a step takes on a rank with a plan.
using Model = std::function<double(int rank, int plan, int step)>;

struct Outcome {
  int plan = 0;
  int steps = 0;              // until it was over
  int changes = 0;            // of the plan that a step follows
  std::vector<int> steps_of;  // by plan: steps that followed it
};

// Some ranks, each with a tuner of its own, that agree on the maximum after every turn.
Outcome Tune(int plans, int first, int ranks, const Model& model, int others = 0) {
  std::vector<Tuner> tuners(static_cast<size_t>(ranks), Tuner(plans, first, others));
  Outcome outcome{.plan = first, .steps_of = std::vector<int>(static_cast<size_t>(plans + others))};
  while (!tuners[0].over()) {
    const int plan = tuners[0].current();
    outcome.changes += plan != outcome.plan ? 1 : 0;
    outcome.plan = plan;
    ++outcome.steps;
    ++outcome.steps_of[static_cast<size_t>(plan)];
    bool ended = false;
    double slowest = 0;
    for (int r = 0; r < ranks; ++r) {
      Tuner& tuner = tuners[static_cast<size_t>(r)];
      EXPECT_EQ(tuner.current(), plan);
      ended = tuner.EndStep(model(r, plan, outcome.steps));
      if (ended) slowest = std::max(slowest, tuner.Median());
    }
    for (Tuner& tuner : tuners) {
      if (ended) tuner.EndTurn(slowest);
    }
    if (outcome.steps > 1000) ADD_FAILURE() << "it does not end";
    if (outcome.steps > 1000) break;
  }
  for (const Tuner& tuner : tuners) {
    EXPECT_TRUE(tuner.over());
    EXPECT_EQ(tuner.current(), tuners[0].best());
  }
  outcome.plan = tuners[0].best();
  return outcome;
}

Model Exact(std::vector<double> times) {
  return [times = std::move(times)](int, int plan, int) { return times[static_cast<size_t>(plan)]; };
}

constexpr int kTrial = 3 * 2 * Tuner::kTurnSteps;  // steps of one that is clear

TEST(TunerTest, WithOnePlanThereIsNothingToTry) {
  EXPECT_TRUE(Tuner(1, 0).over());
  EXPECT_EQ(Tuner(1, 0).current(), 0);
}

TEST(TunerTest, ATrialThatLosesIsUndone) {
  const Outcome outcome = Tune(5, 2, 3, Exact({9, 1.2, 1, 1.2, 9}));
  EXPECT_EQ(outcome.plan, 2);
  EXPECT_EQ(outcome.steps, 2 * kTrial);
  EXPECT_EQ(outcome.steps_of, (std::vector<int>{0, kTrial / 2, kTrial, kTrial / 2, 0}));
}

TEST(TunerTest, AWinnerTakesThePlaceInEitherDirection) {
  EXPECT_EQ(Tune(5, 2, 2, Exact({9, 9, 1, 0.9, 9})).plan, 3);
  EXPECT_EQ(Tune(5, 2, 2, Exact({9, 9, 1, 0.9, 0.8})).plan, 4);
  EXPECT_EQ(Tune(5, 2, 2, Exact({9, 0.9, 1, 9, 9})).plan, 1);
  EXPECT_EQ(Tune(5, 2, 2, Exact({0.8, 0.9, 1, 9, 9})).plan, 0);
  EXPECT_EQ(Tune(2, 0, 2, Exact({1, 0.9})).plan, 1);
  EXPECT_EQ(Tune(2, 1, 2, Exact({0.9, 1})).plan, 0);
}

// What lies behind a winner has lost to the plan that it beat.
TEST(TunerTest, DoesNotTurnBack) {
  const Outcome outcome = Tune(3, 1, 2, Exact({0.5, 1, 0.9}));
  EXPECT_EQ(outcome.plan, 2);
  EXPECT_EQ(outcome.steps_of[0], 0);
}

// Plans 3 to 5 are the second list.
TEST(TunerTest, ThenTheMiddleOfTheOtherListIsTried) {
  const Outcome loses = Tune(3, 1, 2, Exact({1.2, 1, 1.2, 0.1, 1.2, 0.1}), 3);
  EXPECT_EQ(loses.plan, 1);
  EXPECT_EQ(loses.steps_of, (std::vector<int>{kTrial / 2, 3 * kTrial / 2, kTrial / 2, 0, kTrial / 2, 0}));
  EXPECT_EQ(Tune(3, 1, 2, Exact({1.2, 1, 1.2, 1, 0.9, 1}), 3).plan, 4);
  EXPECT_EQ(Tune(3, 1, 2, Exact({1.2, 1, 1.2, 1, 0.9, 0.8}), 3).plan, 5);
  EXPECT_EQ(Tune(3, 1, 2, Exact({1.2, 1, 1.2, 0.8, 0.9, 1}), 3).plan, 3);
  EXPECT_EQ(Tune(3, 1, 2, Exact({1.2, 1, 0.8, 1, 0.9, 0.1}), 3).plan, 2) << "a winner of the first list";
  EXPECT_EQ(Tune(1, 0, 2, Exact({1, 0.9}), 1).plan, 1);
  EXPECT_EQ(Tune(2, 1, 2, Exact({1.1, 1, 0.8, 0.9}), 2).plan, 2) << "by way of 3";
  EXPECT_EQ(Tune(3, 1, 1, Exact({2, 1, 2, 2, 2, 2}), 3).steps, 3 * 2 * Tuner::kTurnSteps);
}

TEST(TunerTest, WhatSavesLittleDoesNotWin) {
  EXPECT_EQ(Tune(5, 2, 2, Exact({0.8, 0.96, 1, 0.96, 0.8})).plan, 2);
}

TEST(TunerTest, AHopelessTrialIsShort) {
  const Outcome outcome = Tune(3, 1, 2, Exact({4, 1, 2}));
  EXPECT_EQ(outcome.plan, 1);
  EXPECT_EQ(outcome.steps, 2 * 2 * Tuner::kTurnSteps);
}

// The slowest rank decides, though it is another one with each plan.
TEST(TunerTest, TheSlowestRankCounts) {
  const Model model = [](int rank, int plan, int) { return plan == 1 ? 1.0 : (rank == plan ? 1.1 : 0.5); };
  EXPECT_EQ(Tune(3, 1, 3, model).plan, 1);
}

// The first step of a turn, and a step in the midst that takes a hundred times as long.
TEST(TunerTest, OddStepsDoNotCount) {
  const Model model = [](int rank, int plan, int step) {
    const bool odd = step % Tuner::kTurnSteps == 1 || step % Tuner::kTurnSteps == (rank + 3) % Tuner::kTurnSteps;
    return odd ? 100.0 * (3 - plan) : plan == 2 ? 0.9 : 1.0;
  };
  EXPECT_EQ(Tune(3, 1, 2, model).plan, 2);
}

// A machine that gets slower and slower does so for both plans of a round; two whole turns that were disturbed are
// outvoted.
TEST(TunerTest, DriftAndSlowTurnsDoNotDecide) {
  const Model drift = [](int, int plan, int step) { return (1 + 0.002 * step) * (plan == 2 ? 0.8 : 1.0); };
  EXPECT_EQ(Tune(3, 1, 2, drift).plan, 2);
  const Model slow = [](int, int plan, int step) {
    const int turn = (step - 1) / Tuner::kTurnSteps;
    return (turn == 0 || turn == 4 ? 1.4 : 1.0) *
           (plan == 1 ? 1 : 0.99);  // of the plan in use: the other one looks good
  };
  EXPECT_EQ(Tune(3, 1, 2, slow).plan, 1);
}

// Noise of 10 % in each step, over seeds: a plan that is 20 % better is found, none is taken that is not better, and
// it always ends.
TEST(TunerTest, Noise) {
  int found = 0, kept = 0, better = 0;
  constexpr int kSeeds = 500, kMost = 3 * Tuner::kRounds * 2 * Tuner::kTurnSteps;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> noise(0, 0.1);
    const auto noisy = [&](std::vector<double> times) {
      return [&, times = std::move(times)](int, int plan, int) {
        return times[static_cast<size_t>(plan)] * std::max(0.1, 1 + noise(random));
      };
    };
    const Outcome winner = Tune(5, 2, 4, noisy({1.2, 1.1, 1, 0.8, 0.9}));
    const Outcome none = Tune(5, 2, 4, noisy({1.1, 1, 1, 1, 1.1}));
    found += winner.plan == 3 ? 1 : 0;
    better += winner.plan >= 3 ? 1 : 0;
    kept += none.plan == 2 ? 1 : 0;
    EXPECT_LE(winner.steps, kMost);
    EXPECT_LE(none.steps, kMost);
    EXPECT_LE(winner.changes, kMost / Tuner::kTurnSteps);
  }
  EXPECT_GE(found, kSeeds * 98 / 100);
  EXPECT_GE(better, kSeeds * 99 / 100);
  EXPECT_GE(kept, kSeeds * 70 / 100);  // what is taken by mistake is as good
}

}  // namespace
}  // namespace gyre::fusion
