// How models scale: predictions, findings, charts and the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "report/chart.h"
#include "scaling/findings.h"
#include "scaling/measured.h"
#include "scaling/page.h"
#include "scaling/predict.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::bench {

namespace {

using testing::HasSubstr;
using testing::Not;

// Links of 10 Gbit/s, workers of 15 TFLOP/s.
Setting Usual(int workers_per_host = 1) {
  return {.network = {.workers_per_host = workers_per_host,
                      .bytes_per_second = 1.25e9,
                      .latency = 20e-6,
                      .reduced_bytes_per_second = 10e9},
          .flops_per_second = 15e12,
          .batch = 32};
}

const Prediction& Of(const std::vector<Prediction>& predictions, const std::string& strategy) {
  const auto found = std::ranges::find(predictions, strategy, &Prediction::strategy);
  EXPECT_NE(found, predictions.end()) << strategy;
  return found == predictions.end() ? predictions.front() : *found;
}

TEST(ScalingTest, TheExchangeIsTheAdvices) {
  const Model model = *MakeModel("vgg16");
  for (const int workers_per_host : {1, 8}) {
    const Setting setting = Usual(workers_per_host);
    const auto predictions = *Predict(model, setting, 48);
    internal::AdviceQuestion question = setting.network;
    question.model_bytes = 4.0 * static_cast<double>(model.count());
    question.hosts = 48 / workers_per_host;
    question.most_servers = question.hosts;
    const auto advice = *internal::Advise(question);
    int compared = 0;
    for (const Strategy& strategy : Strategies(workers_per_host)) {
      if (strategy.name == "dgc") continue;  // dense where that is sooner
      const Prediction& p = Of(predictions, strategy.name);
      const auto row = std::ranges::find_if(advice, [&](const internal::Advice& each) {
        return each.strategy == strategy.advice && each.servers == p.servers;
      });
      ASSERT_NE(row, advice.end()) << strategy.name;
      EXPECT_EQ(p.exchange_seconds, row->seconds) << strategy.name;
      ++compared;
      // In step nothing is hidden: the simulation of every worker's steps comes to the formula.
      if (strategy.servers != Strategy::Servers::kNone && strategy.consistency == "bsp") {
        EXPECT_NEAR(p.step_seconds, p.compute_seconds + row->seconds, 1e-9 * p.step_seconds) << strategy.name;
      }
    }
    EXPECT_EQ(compared, workers_per_host == 1 ? 14 : 15);
  }
}

TEST(ScalingTest, WhatIsLooserIsNeverSlower) {
  for (const char* const name : {"resnet50", "vgg16"}) {
    const auto predictions = *Predict(*MakeModel(name), Usual(), 24);
    for (const std::string servers : {"1 server", "2 servers", "N servers", "servers beside workers"}) {
      const double in_step = Of(predictions, servers).step_seconds * (1 + 1e-9);
      EXPECT_LE(Of(predictions, servers + ", ssp").step_seconds, in_step) << name << " " << servers;
      EXPECT_LE(Of(predictions, servers + ", async").step_seconds, in_step) << name << " " << servers;
    }
    EXPECT_LE(Of(predictions, "dgc").step_seconds, Of(predictions, "few steps").step_seconds) << name;
  }
}

TEST(ScalingTest, TheBackwardPassHidesWhatItCan) {
  const Model model = *MakeModel("resnet50");
  EXPECT_NEAR(OverlappedSeconds(model, 3, 0), 3, 1e-9);
  const double some = OverlappedSeconds(model, 3, 1);
  EXPECT_GT(some, 3);
  EXPECT_LT(some, 3.2) << "the first layers, whose gradients come last, are small";
  const double much = OverlappedSeconds(model, 3, 100);
  EXPECT_GE(much, 101 - 1e-9) << "it begins when the forward pass has ended";
  EXPECT_LT(much, 103);
}

TEST(ScalingTest, OneWorkerAloneHasNothingToExchangeByAllReduce) {
  const auto predictions = *Predict(*MakeModel("alexnet"), Usual(), 1);
  EXPECT_EQ(Of(predictions, "ring").efficiency, 1);
  EXPECT_LT(Of(predictions, "1 server").efficiency, 1) << "its server is on another host";
  EXPECT_THAT(Predict(*MakeModel("alexnet"), Usual(8), 4),
              support::MatchesStatus(absl::StatusCode::kInvalidArgument, "4 workers"));
}

// Fast workers on slow links show all of it; where links cost nothing, one server is as good as any.
TEST(ScalingTest, FindingsAreReadOffThePredictions) {
  const auto findings = [](const Setting& setting, const std::vector<int>& counts = {8, 16}) {
    std::vector<Model> models;
    std::vector<Prediction> predictions;
    for (const char* const name : {"googlenet", "resnet50", "vgg16"}) {
      models.push_back(*MakeModel(name));
      for (const int workers : counts)
        std::ranges::copy(*Predict(models.back(), setting, workers), std::back_inserter(predictions));
    }
    return Findings(models, predictions, setting);
  };
  const auto usual = findings(Usual());
  ASSERT_EQ(usual.size(), 5);
  for (const Finding& each : usual) {
    EXPECT_THAT(each.evidence, Not(HasSubstr("nan"))) << each.claim;
    EXPECT_TRUE(each.shown || !each.claim.starts_with("VGG-16")) << each.evidence;
  }
  const auto many = findings(Usual(), {96, 128});
  ASSERT_EQ(many.size(), 5) << "of more than the usual number";
  EXPECT_THAT(many[0].evidence, HasSubstr("96 workers"));
  Setting fast = Usual();
  fast.network.bytes_per_second = fast.network.reduced_bytes_per_second = 1e18;
  for (const Finding& each : findings(fast)) {
    EXPECT_FALSE(each.shown && each.claim.starts_with("VGG-16")) << each.evidence;
  }
}

TEST(ScalingTest, AChartHasItsAxesAndItsLegend) {
  const Chart chart{.title = "a < b",
                    .x_label = "workers",
                    .y_label = "images (1/s)",
                    .log_x = true,
                    .series = {{.name = "ring & tree", .points = {{1, 0.5}, {2, 3}, {4096, 7}}},
                               {.name = "dots", .line = false, .points = {{8, 1}}, .labels = {"eight"}},
                               {.name = "nothing"}}};
  const std::string svg = ToSvg(chart);
  for (const char* const text :
       {"a &lt; b", ">workers<", ">images (1/s)<", "ring &amp; tree", ">dots<", ">eight<", ">4096<", "</svg>"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(ToSvg(Chart{.title = "empty"}), testing::AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST(ScalingTest, ThePageHasWhatWasMeasuredBesideThePrediction) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "lines.json";
  std::ofstream(path) << R"({"model": "vgg16", "workers": 4, "hosts": 4, "rate_gflops": 4000, "batch": 32, "gbits": 1,)"
                      << R"( "latency_us": 50, "strategy": "1 server", "images_per_s": 6.5})"
                      << "\n";
  const auto measured = ScalingBars(path);
  ASSERT_THAT(measured, support::IsOk());
  ASSERT_EQ(measured->size(), 1);
  const Bar& bar = measured->front().bars.at(0);
  EXPECT_EQ(bar.measured, 6.5);
  // 4 models of 553 MB at 0.125 GB/s, and 0.74 s of computation.
  EXPECT_NEAR(*bar.predicted, 128 / (4 * 553.43e6 / 0.125e9 + 0.743), 0.05);

  ScalingPage page{.command = "gyre-bench <x>", .models = {*MakeModel("vgg16")}, .setting = Usual()};
  page.scaled.push_back({.workers_per_host = 1, .predictions = *Predict(page.models[0], page.setting, 8)});
  page.findings = {{"claim", true, "evidence"}};
  page.measured = *measured;
  const auto html = ToHtml(page);
  ASSERT_THAT(html, support::IsOk());
  for (const char* const text : {"gyre-bench &lt;x&gt;", "Measured", "Predicted", "vgg16", "evidence", "1 server"}) {
    EXPECT_THAT(*html, HasSubstr(text));
  }
  for (const char* const text : {"nan", "<script", "src=", "href="}) {
    EXPECT_THAT(*html, Not(HasSubstr(text))) << "it stands alone";
  }
}

TEST(ScalingTest, LinesThatMakeNoSenseAreNamed) {
  const support::TemporaryDirectory folder;
  const auto written = [&](const std::string& text) {
    std::string path = folder.path() / "lines.json";
    std::ofstream(path) << text;
    return path;
  };
  using support::MatchesStatus;
  EXPECT_THAT(ScalingBars(written("no JSON\n")), MatchesStatus(absl::StatusCode::kInvalidArgument, "line 1"));
  EXPECT_THAT(ScalingBars(written("")), MatchesStatus(absl::StatusCode::kInvalidArgument, "no lines"));
  EXPECT_THAT(ScalingBars(written("{\"model\": 7}\n")), MatchesStatus(absl::StatusCode::kInvalidArgument, "no model"));
  const std::string start = R"({"model": "vgg16", "workers": 2)";
  EXPECT_THAT(ScalingBars(written(start + "}\n")), MatchesStatus(absl::StatusCode::kInvalidArgument, "rate_gflops"));
  EXPECT_THAT(ScalingBars(written(start + R"(, "rate_gflops": 1, "batch": 1})" + "\n")),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "bandwidth"));
  EXPECT_THAT(StragglerBars("/nowhere"), MatchesStatus(absl::StatusCode::kInvalidArgument, "/nowhere"));
}

}  // namespace

}  // namespace gyre::bench
