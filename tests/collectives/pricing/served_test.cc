#include "collectives/pricing/served.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "collectives/pricing/advice.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

double RateOf(const ServedQuestion& question) {
  const auto ends = ServedSteps(question);
  EXPECT_THAT(ends, support::IsOk());
  return SteadyRate(*ends, question.workers);
}

TEST(ServedTest, AWorkerAloneTakesItsComputationAndItsLink) {
  const auto ends = *ServedSteps(
      {.compute_seconds = 2, .link_seconds = 1, .server_seconds = 0.5, .latency_seconds = 0.25, .most_steps = 3});
  EXPECT_EQ(ends, (std::vector<double>{3.25, 6.5, 9.75}));
}

// The last worker's values have left the server when it has sent them to all.
TEST(ServedTest, InStepTheExchangeIsWhatTheAdviceSays) {
  for (const int servers : {1, 2, 3, 8}) {
    const AdviceQuestion question{.model_bytes = 1e9,
                                  .hosts = 6,
                                  .bytes_per_second = 1e9,
                                  .latency = 1e-3,
                                  .reduced_bytes_per_second = 1e30,
                                  .most_servers = 8};
    const auto advice = *Advise(question);
    const auto row = std::ranges::find_if(
        advice, [&](const Advice& each) { return each.strategy == "servers apart" && each.servers == servers; });
    ASSERT_NE(row, advice.end());
    const double rate = RateOf({.workers = 6,
                                .compute_seconds = 0.7,
                                .link_seconds = 1,
                                .server_seconds = 1.0 / servers,
                                .latency_seconds = 2e-3,
                                .most_steps = 6 * 9});
    EXPECT_NEAR(6 / rate, 0.7 + row->seconds, 1e-9) << servers;
  }
}

TEST(ServedTest, WithoutStepsWorkersTakeTurnsAtABusyServer) {
  // Eight workers' pushes keep the server busy for 8 s, whoever computes meanwhile; two leave it idle.
  EXPECT_NEAR(
      RateOf(
          {.workers = 8, .compute_seconds = 3, .bound = {}, .link_seconds = 1, .server_seconds = 1, .most_steps = 240}),
      1, 1e-9);
  EXPECT_NEAR(
      RateOf(
          {.workers = 2, .compute_seconds = 3, .bound = {}, .link_seconds = 1, .server_seconds = 1, .most_steps = 60}),
      0.5, 0.01);
}

TEST(ServedTest, OneWorkerThatIsAlwaysSlowHoldsUpThoseInStepAlone) {
  ServedQuestion question{.workers = 4, .compute_seconds = 1, .slowdown = {.permanent = 1}, .most_steps = 400};
  EXPECT_NEAR(RateOf(question), 0.4, 1e-9);
  question.bound = 4;
  EXPECT_NEAR(RateOf(question), 0.4, 0.02) << "a bound delays the wait, and no more";
  question.bound = std::nullopt;
  EXPECT_NEAR(RateOf(question), 3.1, 0.02);
}

// Of four workers in step, one at least is slow in 1 - 0.95^4 of the steps.
TEST(ServedTest, ABoundHidesMostOfWhatIsSlowNowAndThen) {
  ServedQuestion question{
      .workers = 4, .compute_seconds = 1, .slowdown = {.probability = 0.05}, .most_steps = 4 * 20'000};
  const double slow = 1 - std::pow(0.95, 4), in_step = RateOf(question);
  EXPECT_NEAR(4 / in_step, 1 + 9 * slow, 0.05);
  question.bound = 4;
  const double stale = RateOf(question);
  question.bound = std::nullopt;
  EXPECT_NEAR(4 / RateOf(question), 1 + 9 * 0.05, 0.02) << "nobody waits for anybody";
  EXPECT_GT(stale, 1.3 * in_step);
  EXPECT_LT(stale, RateOf(question));
}

// What SSP promises: nobody is more than the bound and the step under way ahead of the slowest.
TEST(ServedTest, TheBoundIsKept) {
  const auto ends = *ServedSteps({.workers = 2,
                                  .compute_seconds = 1,
                                  .slowdown = {.permanent = 1, .factor = 1000},
                                  .bound = 3,
                                  .most_steps = 100,
                                  .most_seconds = 999});
  EXPECT_EQ(ends.size(), 3) << "steps 0 to 2 give values for 1 to 3; those for 4 need the other's first push";
}

TEST(ServedTest, TheSameSeedSlowsTheSameSteps) {
  const Slowdown slowdown{.probability = 0.25, .factor = 3, .seed = 7};
  Slowdown other = slowdown;
  other.seed = 8;
  int slow = 0, differ = 0;
  for (int worker = 0; worker < 10; ++worker) {
    for (int step = 0; step < 1000; ++step) {
      slow += SlowdownOf(slowdown, worker, step) == 3 ? 1 : 0;
      differ += SlowdownOf(slowdown, worker, step) != SlowdownOf(other, worker, step) ? 1 : 0;
    }
  }
  EXPECT_NEAR(slow, 2500, 150);
  EXPECT_NEAR(differ, 3750, 200) << "2 * 0.25 * 0.75 of them";
}

TEST(ServedTest, WhatIsOutOfItsRangeIsNamed) {
  EXPECT_THAT(ServedSteps({.workers = 0, .most_steps = 1}),
              support::MatchesStatus(absl::StatusCode::kInvalidArgument, "workers"));
  EXPECT_THAT(ServedSteps({.bound = -1, .most_steps = 1}),
              support::MatchesStatus(absl::StatusCode::kInvalidArgument, "staleness"));
  EXPECT_THAT(ServedSteps({}), support::MatchesStatus(absl::StatusCode::kInvalidArgument, "steps"));
}

}  // namespace
}  // namespace gyre::internal
