#include "scaling/page.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/pricing/served.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Parameter servers and allreduce</title>
<style>
body { font-family: sans-serif; max-width: 960px; margin: 2em auto; padding: 0 1em; color: #222; line-height: 1.45; }
table { border-collapse: collapse; font-size: 0.9em; margin: 1em 0; }
th, td { padding: 0.25em 0.7em; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, th.text, td.text { text-align: left; }
.plots { display: flex; flex-wrap: wrap; gap: 16px; }
svg { border: 1px solid #e5e5e5; }
code { font-size: 0.9em; overflow-wrap: anywhere; }
.measured { color: #00664b; } .predicted { color: #8a4b00; }
</style></head><body>
)";

constexpr char kMeasured[] = "<b class=\"measured\">Measured</b> ",
               kPredicted[] = "<b class=\"predicted\">Predicted</b> ";

// How a strategy is drawn: allreduce by lines, servers by dashes.
struct Style {
  std::string name, legend;
  int colour;
  bool dashed;
};
const std::vector<Style>& Styles() {
  static const std::vector<Style> styles = {{"ring", "allreduce: ring of all workers", 0, false},
                                            {"hierarchical ring", "allreduce: hosts, then ring", 1, false},
                                            {"few steps", "allreduce: halving, doubling", 2, false},
                                            {"dgc", "allreduce: DGC, 99.9 %", 3, false},
                                            {"1 server", "1 server", 5, true},
                                            {"2 servers", "2 servers", 4, true},
                                            {"N servers", "as many servers as hosts", 6, true},
                                            {"servers beside workers", "servers on the workers' hosts", 7, true}};
  return styles;
}

std::string Plots(const std::vector<std::string>& plots) {
  std::string html = "<div class=\"plots\">\n";
  for (const std::string& each : plots) html += each;
  return html + "</div>\n";
}

// Efficiency by workers, of the strategies in `styles`.
Chart EfficiencyChart(const std::string& model, const Scaled& scaled, const std::vector<Style>& styles,
                      const std::string& title) {
  Chart chart{.title = title,
              .x_label = "workers",
              .y_label = "scaling efficiency (1: no exchange)",
              .log_x = true,
              .y_most = 1};
  for (const Style& style : styles) {
    Series series{.name = style.legend, .colour = style.colour, .dashed = style.dashed};
    for (const Prediction& p : scaled.predictions) {
      if (p.model == model && p.strategy == style.name) series.points.emplace_back(p.workers, p.efficiency);
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string ScalingSection(const ScalingPage& report, const Scaled& scaled) {
  std::string html = absl::StrFormat("<h2>Scaling, %d worker%s a host</h2>\n<p>%sWorkers in step.</p>\n",
                                     scaled.workers_per_host, scaled.workers_per_host == 1 ? "" : "s", kPredicted);
  std::vector<std::string> plots;
  for (const Model& model : report.models) {
    const std::string title = absl::StrFormat("%s: %.0f MB, %.0f FLOP a parameter", model.name,
                                              static_cast<double>(model.count()) * 4e-6, FlopsPerParameter(model));
    plots.push_back(ToSvg(EfficiencyChart(model.name, scaled, Styles(), title)));
  }
  return html + Plots(plots);
}

std::string ConsistencySection(const ScalingPage& report, const Scaled& scaled) {
  std::string html = absl::StrFormat(
      "<h2>In step, with a bound, asynchronously</h2>\n<p>%sNobody is slow here: what is gained is that workers out of "
      "step use the servers' links while others compute. Asynchronous steps are steps a second, not progress of "
      "training: what gradients of old weights cost in accuracy is not in these plots.</p>\n",
      kPredicted);
  const std::vector<Style> styles = {{"1 server", "1 server, in step", 5, false},
                                     {"1 server, ssp", "1 server, SSP", 5, true},
                                     {"1 server, async", "1 server, asynchronous", 4, true},
                                     {"N servers", "N servers, in step", 0, false},
                                     {"N servers, ssp", "N servers, SSP", 0, true},
                                     {"N servers, async", "N servers, asynchronous", 1, true}};
  std::vector<std::string> plots;
  for (const Model& model : report.models) {
    if (model.name != "vgg16" && model.name != "resnet50" && report.models.size() > 2) continue;
    plots.push_back(ToSvg(EfficiencyChart(model.name, scaled, styles, model.name)));
  }
  return html + Plots(plots);
}

std::string ComputationSection(const ScalingPage& report, const Scaled& scaled) {
  int workers = 0;
  for (const Prediction& p : scaled.predictions) {
    if (p.workers <= 64) workers = std::max(workers, p.workers);
  }
  if (workers == 0 && !scaled.predictions.empty()) {
    workers = std::ranges::min(scaled.predictions, {}, &Prediction::workers).workers;
  }
  std::vector<Model> models = report.models;
  std::ranges::sort(models, {}, FlopsPerParameter);
  Chart chart{.title = absl::StrFormat("%d workers, %d a host", workers, scaled.workers_per_host),
              .x_label = "FLOP of a step, a parameter and sample",
              .y_label = "scaling efficiency (1: no exchange)",
              .y_most = 1};
  for (const Style& style : Styles()) {
    if (style.name != "few steps" && style.name != "1 server" && style.name != "N servers") continue;
    Series series{.name = style.legend, .colour = style.colour, .line = false};
    for (const Model& model : models) {
      for (const Prediction& p : scaled.predictions) {
        if (p.model != model.name || p.strategy != style.name || p.workers != workers) continue;
        series.points.emplace_back(FlopsPerParameter(model), p.efficiency);
        if (style.name == "few steps") series.labels.push_back(model.name);
      }
    }
    chart.series.push_back(std::move(series));
  }
  return absl::StrCat("<h2>Efficiency by computation per parameter</h2>\n<p>", kPredicted, "</p>\n",
                      Plots({ToSvg(chart)}));
}

// Of the largest model: what its exchange takes with more and more servers.
absl::StatusOr<std::string> ServersSection(const ScalingPage& report) {
  constexpr int kHosts = 16;
  const auto model = std::ranges::max_element(report.models, {}, &Model::count);
  internal::AdviceQuestion question = report.setting.network;
  question.model_bytes = static_cast<double>(model->count()) * sizeof(float);
  question.hosts = question.most_servers = kHosts;
  ASSIGN_OR_RETURN(const std::vector<internal::Advice> advice, internal::Advise(question));
  const std::pair<const char*, const char*> names[] = {{"servers apart", "servers apart"},
                                                       {"servers apart and beside workers", "apart and beside workers"},
                                                       {"servers beside workers", "beside all workers"},
                                                       {"allreduce, over hosts", "allreduce: ring"},
                                                       {"allreduce, over hosts, compressed", "allreduce: fp16"},
                                                       {"allreduce, sparse", "allreduce: DGC"}};
  Chart chart{.title = absl::StrFormat("%s on %d hosts of one worker", model->name, kHosts),
              .x_label = "servers on hosts of their own",
              .y_label = "exchange of a step (ms)"};
  double ring = 0;
  for (const auto& [name, legend] : names) {
    const int colour = static_cast<int>(chart.series.size()) + (chart.series.size() >= 3 ? 1 : 0);
    Series series{.name = legend, .colour = colour};
    std::map<int, double> points;
    for (const internal::Advice& row : advice) {
      if (row.strategy == name) points[row.servers] = row.seconds * 1e3;
    }
    if (points.empty()) continue;
    if (!points.contains(1)) {  // needs no server: the same all along
      series.dashed = true;
      points[kHosts] = points[0];
    }
    if (name == std::string("allreduce, over hosts")) ring = points[0];
    series.points.assign(points.begin(), points.end());
    chart.series.push_back(std::move(series));
  }
  chart.y_most = 4 * ring;  // a single server's would leave nothing of the rest
  return absl::StrCat(
      "<h2>How many servers</h2>\n<p>", kPredicted,
      "What <code>gyre-bench advise</code> says, from the same formulas. The axis ends at four times the "
      "ring's; fewer servers take longer still.</p>\n",
      Plots({ToSvg(chart)}));
}

// Throughput of all workers over that in step, by the bound.
absl::StatusOr<Chart> BoundChart() {
  constexpr int kWorkers[] = {4, 16, 64};
  Chart chart{.title = "each worker 10 times slower in a step, probability 0.05",
              .x_label = "bound of staleness (steps)",
              .y_label = "throughput (in step: 1)"};
  for (const int workers : kWorkers) {
    const auto rate = [workers](std::optional<int64_t> bound) -> absl::StatusOr<double> {
      ASSIGN_OR_RETURN(const std::vector<double> ends, internal::ServedSteps({.workers = workers,
                                                                              .compute_seconds = 1,
                                                                              .slowdown = {.probability = 0.05},
                                                                              .bound = bound,
                                                                              .most_steps = int64_t{3000} * workers}));
      return internal::SteadyRate(ends, workers);
    };
    ASSIGN_OR_RETURN(const double in_step, rate(0));
    ASSIGN_OR_RETURN(const double free, rate(std::nullopt));
    const int colour = static_cast<int>(chart.series.size()) / 2;
    Series bound{.name = absl::StrCat(workers, " workers"), .colour = colour};
    for (const int64_t steps : {0, 1, 2, 3, 4, 6, 8, 12, 16}) {
      ASSIGN_OR_RETURN(const double stale, rate(steps));
      bound.points.emplace_back(static_cast<double>(steps), stale / in_step);
    }
    chart.series.push_back(std::move(bound));
    chart.series.push_back({.name = absl::StrCat(workers, " workers, asynchronous"),
                            .colour = colour,
                            .dashed = true,
                            .points = {{0, free / in_step}, {16, free / in_step}}});
  }
  return chart;
}

absl::StatusOr<std::string> StragglersSection(const ScalingPage& report) {
  ASSIGN_OR_RETURN(const Chart chart, BoundChart());
  std::vector<std::string> plots = {ToSvg(chart)};
  for (const Bars& each : report.stragglers) plots.push_back(ToSvg(each));
  return absl::StrCat(
      "<h2>Stragglers</h2>\n<p>", kPredicted, "by the plot of bounds, with an exchange that costs nothing.",
      report.stragglers.empty() ? "" : absl::StrCat(" ", kMeasured, "where there are bars: bench/stragglers."),
      "</p>\n", Plots(plots));
}

std::string FindingsSection(const ScalingPage& report) {
  std::string html = absl::StrFormat(
      "<h2>What the field has found</h2>\n<p>%swith one worker a host; whether the predictions of this page show "
      "it.</p>\n"
      "<table><tr><th>Finding</th><th>shown</th><th class=\"text\">figures</th></tr>\n",
      kPredicted);
  for (const Finding& each : report.findings) {
    absl::StrAppend(&html, "<tr><td>", Escaped(each.claim), "</td><td>", each.shown ? "yes" : "<b>no</b>",
                    "</td><td class=\"text\">", Escaped(each.evidence), "</td></tr>\n");
  }
  return html + "</table>\n";
}

std::string MeasuredSection(const ScalingPage& report) {
  if (report.measured.empty()) return "";
  std::vector<std::string> plots;
  for (const Bars& each : report.measured) plots.push_back(ToSvg(each));
  return absl::StrCat(
      "<h2>For real</h2>\n<p>", kMeasured,
      "by bench/ps_vs_allreduce: hosts are network namespaces of one machine with links of limited rate, "
      "and share its processor; computation is slept. Red marks: what the same model predicts for these "
      "links.</p>\n",
      Plots(plots));
}

std::string Introduction(const ScalingPage& report) {
  const internal::AdviceQuestion& network = report.setting.network;
  return absl::StrFormat(
      "<h1>Parameter servers and allreduce</h1>\n"
      "<p>Training of published networks on many workers. %sfigures are Gyre's own processes; %sones come from a "
      "model: "
      "exchanges by formula (src/collectives/pricing/advice.h), workers that share servers step by step (served.h). "
      "Links "
      "are full both ways, and nothing else is on them. By allreduce gradients are exchanged while the backward pass "
      "makes "
      "the next; to servers they go when it has ended, each worker's by itself: as this library does both.</p>\n"
      "<p>Predictions are for links of %g Gbit/s each way and %g us, workers of %g TFLOP/s with batches of %d, %g GB/s "
      "of gradients added up, DGC that sends %g %% of the bytes at %g GB/s (dense where that is sooner), SSP with "
      "bound "
      "%d.</p>\n<p><code>%s</code></p>\n",
      kMeasured, kPredicted, network.bytes_per_second * 8e-9, network.latency * 1e6,
      report.setting.flops_per_second * 1e-12, report.setting.batch, network.reduced_bytes_per_second * 1e-9,
      network.sparse_share * 100, network.coded_bytes_per_second * 1e-9, report.setting.staleness,
      Escaped(report.command));
}

std::string TableSection(const ScalingPage& report, const Scaled& scaled) {
  std::string html = absl::StrFormat(
      "<h2>Images a second, %d worker%s a host</h2>\n<p>%sWorkers in step; efficiency in "
      "brackets. BERT-large: sequences of 128.</p>\n<table><tr><th>model, workers</th>",
      scaled.workers_per_host, scaled.workers_per_host == 1 ? "" : "s", kPredicted);
  for (const Style& style : Styles()) absl::StrAppend(&html, "<th>", Escaped(style.name), "</th>");
  for (const Model& model : report.models) {
    std::map<int, std::map<std::string, const Prediction*>> rows;
    for (const Prediction& p : scaled.predictions) {
      if (p.model == model.name) rows[p.workers][p.strategy] = &p;
    }
    for (const auto& [workers, row] : rows) {
      absl::StrAppend(&html, "</tr>\n<tr><td>", model.name, ", ", workers, "</td>");
      for (const Style& style : Styles()) {
        const auto found = row.find(style.name);
        absl::StrAppend(&html, "<td>",
                        found == row.end() ? ""
                                           : absl::StrFormat("%.0f (%.2f)", found->second->images_per_second,
                                                             found->second->efficiency),
                        "</td>");
      }
    }
  }
  return html + "</tr></table>\n";
}

}  // namespace

absl::StatusOr<std::string> ToHtml(const ScalingPage& report) {
  std::string html = kHead + Introduction(report) + FindingsSection(report) + MeasuredSection(report);
  ASSIGN_OR_RETURN(const std::string stragglers, StragglersSection(report));
  html += stragglers;
  for (const Scaled& scaled : report.scaled) {
    html += ScalingSection(report, scaled);
    if (scaled.workers_per_host == 1) html += ConsistencySection(report, scaled) + ComputationSection(report, scaled);
  }
  ASSIGN_OR_RETURN(const std::string servers, ServersSection(report));
  html += servers;
  for (const Scaled& scaled : report.scaled) html += TableSection(report, scaled);
  return html + "</body></html>\n";
}

}  // namespace gyre::bench
