#include "collectives/pricing/advice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "collectives/pricing/closed_form.h"
#include "collectives/pricing/price.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using support::IsOk;

// 1 GB of gradients over links of 1 GB/s, where reducing and waiting cost nothing.
AdviceQuestion Plain(int hosts, int servers) {
  return {.model_bytes = 1e9,
          .hosts = hosts,
          .bytes_per_second = 1e9,
          .reduced_bytes_per_second = 1e30,
          .most_servers = servers,
          .compression = 1,
          .sparse_share = 1};
}

double SecondsOf(const AdviceQuestion& question, const std::string& strategy, int servers) {
  const auto advice = Advise(question);
  EXPECT_THAT(advice, IsOk());
  for (const Advice& row : *advice) {
    if (row.strategy == strategy && row.servers == servers) return row.seconds;
  }
  ADD_FAILURE() << strategy << " with " << servers << " servers is missing";
  return -1;
}

TEST(AdviceTest, ByHandForFourHosts) {
  const AdviceQuestion four = Plain(4, 4);
  // 2 (n - 1) / n of the model: both for a ring and for servers beside all workers.
  EXPECT_NEAR(SecondsOf(four, "allreduce, over hosts", 0), 1.5, 1e-9);
  EXPECT_NEAR(SecondsOf(four, "servers beside workers", 0), 1.5, 1e-9);
  // One server apart sends the model to four; four send a quarter each to four, and each worker takes it all once.
  EXPECT_NEAR(SecondsOf(four, "servers apart", 1), 4, 1e-9);
  EXPECT_NEAR(SecondsOf(four, "servers apart", 2), 2, 1e-9);
  EXPECT_NEAR(SecondsOf(four, "servers apart", 4), 1, 1e-9);
  // Two more hosts: 2 * 4 * 3 / (16 + 8 - 4) of the model on every link.
  EXPECT_NEAR(SecondsOf(four, "servers apart and beside workers", 2), 1.2, 1e-9);
}

TEST(AdviceTest, TheCheapestIsFirstAndHostsThatDoNotHelpComeLast) {
  const auto advice = *Advise(Plain(4, 8));
  EXPECT_EQ(advice.front().strategy, "servers apart");
  EXPECT_EQ(advice.front().servers, 4) << "more than as many as workers are of no use";
  for (size_t i = 1; i < advice.size(); ++i) EXPECT_GE(advice[i].seconds, advice[i - 1].seconds);
}

TEST(AdviceTest, WaitingAndReducingCount) {
  AdviceQuestion question = Plain(4, 1);
  question.latency = 0.01;
  EXPECT_NEAR(SecondsOf(question, "allreduce, over hosts", 0), 1.56, 1e-9) << "six steps";
  EXPECT_NEAR(SecondsOf(question, "servers apart", 1), 4.02, 1e-9) << "there and back";
  question.latency = 0;
  question.reduced_bytes_per_second = 0.5e9;  // half as fast as a link: three blocks of a quarter take 1.5 s, not 0.75
  EXPECT_NEAR(SecondsOf(question, "allreduce, over hosts", 0), 2.25, 1e-9);
  EXPECT_NEAR(SecondsOf(question, "servers apart", 1), 8, 1e-9);
}

TEST(AdviceTest, SeveralWorkersOfAHostAndCompression) {
  AdviceQuestion question = Plain(2, 0);
  question.workers_per_host = 4;
  question.reduced_bytes_per_second = 4e9;
  question.compression = 0.25;
  question.coded_bytes_per_second = 10e9;
  EXPECT_NEAR(SecondsOf(question, "allreduce, flat", 0), 1.75, 1e-9) << "14 / 8 of the model";
  EXPECT_NEAR(SecondsOf(question, "allreduce, over hosts", 0), 1 + 1, 1e-9)
      << "4 GB at 4 GB/s, then 2 / 2 of the model";
  EXPECT_NEAR(SecondsOf(question, "allreduce, over hosts, compressed", 0), 1 + 0.2 + 0.25, 1e-9);
}

// What a link carries to servers and back is coded each in its own way, and coding may take longer than that.
TEST(AdviceTest, ServersTakeFewerBytesEachWay) {
  AdviceQuestion question = Plain(4, 4);
  question.compression = 0.25;
  question.rounded_values = 0.5;
  question.coded_bytes_per_second = 1e30;
  EXPECT_NEAR(SecondsOf(question, "servers apart, compressed", 2), 1, 1e-9) << "values to four from two";
  EXPECT_NEAR(SecondsOf(question, "servers apart, compressed", 4), 0.5, 1e-9);
  EXPECT_NEAR(SecondsOf(question, "servers beside workers, compressed", 0), 0.5625, 1e-9) << "both on each way";
  question.compression = 1;
  question.sparse_share = 0.01;
  EXPECT_NEAR(SecondsOf(question, "servers apart, sparse pushes", 1), 2, 1e-9);
  EXPECT_NEAR(SecondsOf(question, "servers beside workers, sparse pushes", 0), 0.3825, 1e-9);
  question.rounded_values = 1;
  EXPECT_NEAR(SecondsOf(question, "servers apart, sparse pushes", 4), 1, 1e-9) << "as without: values are as large";
  question.rounded_values = 0.5;
  question.coded_bytes_per_second = 1e9;
  EXPECT_NEAR(SecondsOf(question, "servers apart, sparse pushes", 1), 4, 1e-9) << "one server decodes for four";
  EXPECT_NEAR(SecondsOf(question, "servers apart, sparse pushes", 4), 2, 1e-9) << "a worker encodes and decodes";
  const auto advice = *Advise(question);
  for (const Advice& row : advice) {
    EXPECT_EQ(row.lossy, row.strategy.find("sparse") != std::string::npos) << row.strategy;
  }
}

// The formulas beside the schedules that ranks would run, event by event.
TEST(AdviceTest, AllReducesTakeWhatTheirSchedulesDo) {
  for (const int hosts : {2, 7, 64}) {
    AdviceQuestion question = Plain(hosts, 0);
    question.model_bytes = 102e6;
    question.latency = 20e-6;
    question.reduced_bytes_per_second = 10e9;
    const PriceModel model{.link = {std::chrono::microseconds(20), 1e9}, .reduced_bytes_per_second = 10e9};
    for (const auto& [name, advice] :
         {std::pair("ring", "allreduce, over hosts"), std::pair("circulant", "allreduce, over hosts, few steps")}) {
      const auto algorithms = PricedAlgorithms();
      const auto algorithm = std::ranges::find_if(
          algorithms, [&](const PricedAlgorithm& each) { return each.operation == "allreduce" && each.name == name; });
      ASSERT_NE(algorithm, algorithms.end());
      const auto price = PriceOfAlike([&](int rank) { return algorithm->make(rank, hosts); }, hosts,
                                      algorithm->BlockBytes(hosts, 102'000'000), model);
      ASSERT_THAT(price, IsOk());
      EXPECT_NEAR(SecondsOf(question, advice, 0) / price->seconds, 1, 0.05) << name << " on " << hosts;
    }
  }
}

TEST(AdviceTest, EveryWorkerPushesForItself) {
  AdviceQuestion question = Plain(2, 4);
  question.workers_per_host = 4;
  EXPECT_NEAR(SecondsOf(question, "servers apart", 1), 8, 1e-9) << "all eight to one";
  EXPECT_NEAR(SecondsOf(question, "servers apart", 4), 4, 1e-9) << "a host's link carries four models";
  EXPECT_NEAR(SecondsOf(question, "servers beside workers", 0), 4, 1e-9) << "half of eight models there, half back";
}

TEST(AdviceTest, FewStepsAndFewElements) {
  AdviceQuestion question = Plain(5, 0);
  question.latency = 0.01;
  EXPECT_NEAR(SecondsOf(question, "allreduce, over hosts, few steps", 0), 1.66, 1e-9) << "2 * 3 steps, 8 / 5";
  question.workers_per_host = 2;
  question.sparse_share = 0.01;
  question.coded_bytes_per_second = 10e9;
  EXPECT_NEAR(SecondsOf(question, "allreduce, sparse", 0), 0.05 + 0.06 + 4 * 0.01, 1e-9)
      << "what four other hosts have chosen, each worker from half of its host's sums";
  question.reduced_bytes_per_second = 10e9;
  EXPECT_NEAR(SecondsOf(question, "allreduce, sparse", 0), 0.2 + 0.05 + 0.06 + 4 * 0.01 + 5 * 0.001, 1e-9)
      << "2 GB added up within the host, then what five have chosen";
}

TEST(AdviceTest, ManyHostsAddUpFewElementsByRegions) {
  AdviceQuestion question = Plain(64, 0);
  question.latency = 0.001;
  question.sparse_share = 0.015;
  question.coded_bytes_per_second = 10e9;
  const double sums = 1.5 * (1 - std::pow(0.99, 64));  // entries of 6 bytes for floats that any host has chosen
  EXPECT_NEAR(SecondsOf(question, "allreduce, sparse", 0), 0.1 + 0.015 + sums + 2 * (64 + 6) * 0.001, 1e-9);
  question.sparse_share = 0.15;
  EXPECT_NEAR(SecondsOf(question, "allreduce, sparse", 0), 0.1 + 0.15 + 1 + 2 * (64 + 6) * 0.001, 1e-9) << "dense sums";
}

TEST(AdviceTest, OneHostNeedsNoNetwork) {
  EXPECT_EQ(SecondsOf(Plain(1, 0), "allreduce, over hosts", 0), 0);
}

TEST(AdviceTest, WhatIsOutOfItsRangeIsNamed) {
  AdviceQuestion question = Plain(2, 0);
  question.compression = 0;
  EXPECT_THAT(Advise(question), support::MatchesStatus(absl::StatusCode::kInvalidArgument, "compression"));
  EXPECT_THAT(Advise({}), support::MatchesStatus(absl::StatusCode::kInvalidArgument, "bytes"));
}

}  // namespace
}  // namespace gyre::internal
