// The parts of the step benchmark that need no other rank.
#include <ctime>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "step/compute.h"
#include "step/contender.h"
#include "step/gradients.h"
#include "step/report.h"
#include "support/status_matchers.h"

namespace gyre::bench {

namespace {

Model Tensors(const std::vector<int64_t>& counts) {
  Model model{.name = "test", .variant = "", .parameters = {}};
  for (const int64_t count : counts) model.parameters.push_back({"p", {count}, 0});
  return model;
}

// Stands for a peer among `ranks` ranks that all have the same gradients; keeps the sizes that it was given.
SumInPlace Multiply(float ranks, std::vector<size_t>& sizes) {
  return [ranks, &sizes](std::span<float> data) {
    sizes.push_back(data.size());
    for (float& each : data) each *= ranks;
    return absl::OkStatus();
  };
}

void RunStepOf(StepContender& contender, const Model& model) {
  for (const int i : BackwardOrder(model)) {
    std::iota(contender.gradient(i).begin(), contender.gradient(i).end(), 100.0F * static_cast<float>(i));
    ASSERT_THAT(contender.Ready(i), support::IsOk());
  }
  ASSERT_THAT(contender.Wait(), support::IsOk());
}

void ExpectMultiplied(StepContender& contender, const Model& model, float by) {
  for (int i = 0; i < static_cast<int>(model.parameters.size()); ++i) {
    const std::span<float> sums = contender.gradient(i);
    for (size_t p = 0; p < sums.size(); ++p) {
      EXPECT_EQ(sums[p], by * (100.0F * static_cast<float>(i) + static_cast<float>(p))) << i << " " << p;
    }
  }
}

TEST(StepPeers, BucketsCloseBeforeTheyOverflow) {
  const Model model = Tensors({3, 1, 20, 4, 0, 5, 6});  // ready from the right
  PlainGradients gradients = MakePlainGradients(model);
  std::vector<size_t> sizes;
  const auto bucketed = MakeBucketed("peer", Multiply(3, sizes), gradients, model, 10 * sizeof(float));
  for (int step = 0; step < 2; ++step) {
    sizes.clear();
    RunStepOf(*bucketed, model);
    EXPECT_THAT(sizes, testing::ElementsAre(6, 9, 20, 4)) << "6 | 5 + 0 + 4 | 20, longer than a bucket | 1 + 3";
    ExpectMultiplied(*bucketed, model, 3);
  }
  EXPECT_EQ(bucketed->copied_bytes(), 2 * 4 * 39);
}

TEST(StepPeers, PerTensorSumsEachByItself) {
  const Model model = Tensors({3, 1, 5});
  PlainGradients gradients = MakePlainGradients(model);
  std::vector<size_t> sizes;
  const auto per_tensor = MakePerTensor("peer", Multiply(2, sizes), gradients);
  RunStepOf(*per_tensor, model);
  EXPECT_THAT(sizes, testing::ElementsAre(5, 1, 3));
  ExpectMultiplied(*per_tensor, model, 2);
}

TEST(StepPeers, AFailureIsPassedOn) {
  const Model model = Tensors({3});
  PlainGradients gradients = MakePlainGradients(model);
  const SumInPlace fail = [](std::span<float>) { return absl::InternalError("broken"); };
  EXPECT_THAT(MakePerTensor("peer", fail, gradients)->Ready(0),
              support::MatchesStatus(absl::StatusCode::kInternal, "broken"));
  const auto bucketed = MakeBucketed("peer", fail, gradients, model, 100);
  EXPECT_THAT(bucketed->Ready(0), support::IsOk());
  EXPECT_THAT(bucketed->Wait(), support::MatchesStatus(absl::StatusCode::kInternal, "broken"));
}

TEST(StepGradients, OnlyTheSumOfAllRanksIsRight) {
  constexpr int kRanks = 5;
  for (const size_t count : {size_t{1}, size_t{60}, size_t{1000}}) {
    std::vector<float> sums(count), one(count);
    for (int rank = 0; rank < kRanks; ++rank) {
      FillGradient(one, 3, rank);
      for (size_t p = 0; p < count; ++p) sums[p] += one[p];
    }
    EXPECT_EQ(CountWrongSums(sums, 3, kRanks), 0);
    EXPECT_GT(CountWrongSums(sums, 4, kRanks), 0) << "another gradient's";
    EXPECT_GT(CountWrongSums(sums, 3, kRanks - 1), 0) << "without one rank";
    EXPECT_GT(CountWrongSums(one, 3, kRanks), 0) << "a rank's own";
    sums.back() += 1;
    EXPECT_EQ(CountWrongSums(sums, 3, kRanks), 1);
  }
}

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST(StepCompute, AnAcceleratorGoesOnWhileTheHostIsAway) {
  Compute compute(ComputeKind::kSleep, 1e9);
  compute.Begin();
  const double start = Seconds(CLOCK_MONOTONIC), processor = Seconds(CLOCK_THREAD_CPUTIME_ID);
  compute.Advance(30e6);
  EXPECT_GE(Seconds(CLOCK_MONOTONIC) - start, 0.0299);
  while (Seconds(CLOCK_MONOTONIC) - start < 0.06) std::this_thread::yield();
  const double away = Seconds(CLOCK_THREAD_CPUTIME_ID) - processor;
  compute.Advance(20e6);  // was done meanwhile
  EXPECT_LT(Seconds(CLOCK_THREAD_CPUTIME_ID) - processor - away, 0.01);
  compute.Advance(50e6);
  EXPECT_GE(Seconds(CLOCK_MONOTONIC) - start, 0.0999);
}

TEST(StepCompute, AProcessorIsUsed) {
  Compute compute(ComputeKind::kCpu, 1e9);
  compute.Begin();
  const double start = Seconds(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < 10'000; ++i) compute.Advance(2e3);  // 2 us each: much shorter than what is worth a look
  EXPECT_NEAR(Seconds(CLOCK_THREAD_CPUTIME_ID) - start, 0.02, 0.005);
}

TEST(StepCompute, APassEndsWhenAllOfItIsDone) {
  constexpr double kWork = 4e-5;  // in seconds: less than is worth a wait
  for (const auto& [kind, clock] :
       {std::pair(ComputeKind::kSleep, CLOCK_MONOTONIC), std::pair(ComputeKind::kCpu, CLOCK_THREAD_CPUTIME_ID)}) {
    Compute compute(kind, 1e9);
    const double start = Seconds(clock);
    compute.Begin();
    compute.Advance(kWork * 1e9);
    compute.Finish();
    EXPECT_GE(Seconds(clock) - start, kWork - 1e-6);
  }
}

TEST(StepCompute, NoneTakesNoTime) {
  Compute compute(ComputeKind::kNone, 1);
  compute.Begin();
  compute.Advance(1e12);  // would be 30,000 years
  EXPECT_THAT(ParseComputeKind("gpu"), support::MatchesStatus(absl::StatusCode::kInvalidArgument, "gpu"));
}

TEST(StepReport, Json) {
  StepMeasurement measurement;
  measurement.lib = "gyre";
  measurement.compute_us = 300;
  measurement.times = {390, 400, 500};
  auto json = nlohmann::json::parse(ToJson(measurement));
  EXPECT_EQ(json["exposed_us_med"], 100);
  EXPECT_EQ(json["efficiency"], 0.75);
  EXPECT_EQ(json["compression"], "none");
  EXPECT_EQ(json["time_us_p99"], 500);
  EXPECT_TRUE(json["wrong"].is_null());
  measurement.compute_us = 0;
  measurement.wrong = 0;
  json = nlohmann::json::parse(ToJson(measurement));
  EXPECT_EQ(json["exposed_us_med"], 400);
  EXPECT_TRUE(json["efficiency"].is_null());
  EXPECT_EQ(json["wrong"], 0);
}

}  // namespace

}  // namespace gyre::bench
