// gyre-bench ps-vs-allreduce: how models scale by allreduce and through parameter servers.
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "commands.h"
#include "gyre/status_macros.h"
#include "nlohmann/json.hpp"
#include "scaling/findings.h"
#include "scaling/measured.h"
#include "scaling/page.h"
#include "scaling/predict.h"

namespace gyre::bench {

namespace {

Setting SettingOf(const ScalingOptions& options) {
  return {.network = {.bytes_per_second = options.bandwidth * 1e9 / 8,
                      .latency = options.latency * 1e-6,
                      .reduced_bytes_per_second = options.reduction * 1e9,
                      .sparse_share = options.sparse,
                      .coded_bytes_per_second = options.codec * 1e9},
          .flops_per_second = options.rate * 1e9,
          .batch = options.batch,
          .staleness = options.staleness};
}

void PrintModel(const Model& model, int workers_per_host, const std::vector<Prediction>& predictions) {
  absl::PrintF("\n# %s (%s): %.1f MB, %.0f FLOP a parameter and sample; %d worker(s) a host\n", model.name,
               model.variant, static_cast<double>(model.count()) * 4e-6, FlopsPerParameter(model), workers_per_host);
  absl::PrintF("# %7s  %-30s %8s %13s %11s %11s %11s\n", "workers", "strategy", "servers", "exchange (ms)", "step (ms)",
               "images/s", "efficiency");
  for (const Prediction& p : predictions) {
    absl::PrintF("  %7d  %-30s %8d %13.2f %11.2f %11.1f %11.3f\n", p.workers, p.strategy, p.servers,
                 p.exchange_seconds * 1e3, p.step_seconds * 1e3, p.images_per_second, p.efficiency);
  }
}

nlohmann::ordered_json PredictionJson(const Prediction& p, int workers_per_host) {
  return {{"lib", "gyre"},
          {"op", "ps_vs_allreduce"},
          {"predicted", true},
          {"model", p.model},
          {"strategy", p.strategy},
          {"workers", p.workers},
          {"workers_per_host", workers_per_host},
          {"hosts", p.hosts},
          {"servers", p.servers},
          {"compute_ms", p.compute_seconds * 1e3},
          {"exchange_ms", p.exchange_seconds * 1e3},
          {"step_ms", p.step_seconds * 1e3},
          {"images_per_s", p.images_per_second},
          {"efficiency", p.efficiency}};
}

absl::Status Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file ? absl::OkStatus() : absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

// All models with as many workers as fill hosts.
absl::StatusOr<Scaled> Scale(const ScalingOptions& options, const ScalingPage& report, int workers_per_host,
                             std::string& json) {
  Scaled scaled{.workers_per_host = workers_per_host, .predictions = {}};
  Setting setting = report.setting;
  setting.network.workers_per_host = workers_per_host;
  for (const Model& model : report.models) {
    std::vector<Prediction> predictions;
    for (const int workers : options.workers) {
      if (workers % workers_per_host != 0) continue;
      ASSIGN_OR_RETURN(std::vector<Prediction> more, Predict(model, setting, workers));
      for (Prediction& each : more) predictions.push_back(std::move(each));
    }
    PrintModel(model, workers_per_host, predictions);
    for (Prediction& each : predictions) {
      absl::StrAppend(&json, PredictionJson(each, workers_per_host).dump(), "\n");
      scaled.predictions.push_back(std::move(each));
    }
  }
  return scaled;
}

}  // namespace

absl::Status RunScaling(const ScalingOptions& options, const std::string& command) {
  ScalingPage report{.command = command, .setting = SettingOf(options)};
  for (const std::string& name : options.models) {
    ASSIGN_OR_RETURN(Model model, MakeModel(name));
    report.models.push_back(std::move(model));
  }
  if (!options.measured.empty()) {
    ASSIGN_OR_RETURN(report.measured, ScalingBars(options.measured));
  }
  if (!options.stragglers.empty()) {
    ASSIGN_OR_RETURN(report.stragglers, StragglerBars(options.stragglers));
  }
  absl::PrintF("# %s: predicted; links of %g Gbit/s each way and %g us\n", command, options.bandwidth, options.latency);
  std::string json;
  for (const int workers_per_host : options.workers_per_host) {
    ASSIGN_OR_RETURN(Scaled scaled, Scale(options, report, workers_per_host, json));
    if (workers_per_host == 1) report.findings = Findings(report.models, scaled.predictions, report.setting);
    report.scaled.push_back(std::move(scaled));
  }
  if (!report.findings.empty()) absl::PrintF("\n# What the field has found, with one worker a host\n");
  for (const Finding& each : report.findings) {
    absl::PrintF("%-9s %s\n          %s\n", each.shown ? "shown" : "NOT SHOWN", each.claim, each.evidence);
  }
  if (!options.json.empty()) RETURN_IF_ERROR(Write(options.json, json));
  if (options.report.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string page, ToHtml(report));
  return Write(options.report, page);
}

}  // namespace gyre::bench
