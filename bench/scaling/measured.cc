#include "scaling/measured.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gyre/status_macros.h"
#include "nlohmann/json.hpp"
#include "scaling/predict.h"

namespace gyre::bench {

namespace {

using nlohmann::json;

absl::StatusOr<std::vector<json>> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    if (!lines.back().is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": line ", lines.size(), " is no JSON object"));
    }
  }
  if (lines.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no lines"));
  return lines;
}

// The value at `key`, of the type of `other`; that where there is none.
template <typename T>
T ValueOf(const json& line, const char* key, const T& other) {
  const auto found = line.find(key);
  const bool good = found != line.end() && (std::is_same_v<T, std::string> ? found->is_string() : found->is_number());
  return good ? found->get<T>() : other;
}

// REQUIRES: not empty
double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

Setting SettingOf(const json& line) {
  return {.network = {.workers_per_host = ValueOf(line, "workers_per_host", 1),
                      .bytes_per_second = ValueOf(line, "gbits", 0.0) * 1e9 / 8,
                      .latency = ValueOf(line, "latency_us", 0.0) * 1e-6,
                      .reduced_bytes_per_second = ValueOf(line, "reduction_gbytes", 10.0) * 1e9,
                      .sparse_share = ValueOf(line, "sparse_share", 0.0015),
                      .coded_bytes_per_second = ValueOf(line, "codec_gbytes", 4.0) * 1e9},
          .flops_per_second = ValueOf(line, "rate_gflops", 0.0) * 1e9,
          .batch = ValueOf(line, "batch", 0),
          .staleness = ValueOf(line, "staleness", 4)};
}

absl::StatusOr<double> Predicted(const json& line, const Model& model, int workers) {
  const Setting setting = SettingOf(line);
  if (setting.flops_per_second <= 0 || setting.batch < 1) {
    return absl::InvalidArgumentError("rate_gflops and batch must be positive");
  }
  ASSIGN_OR_RETURN(const std::vector<Prediction> all, Predict(model, setting, workers));
  const auto strategy = ValueOf(line, "strategy", std::string());
  const auto found = std::ranges::find(all, strategy, &Prediction::strategy);
  if (found == all.end()) return absl::InvalidArgumentError(absl::StrCat("no strategy '", strategy, "'"));
  return found->images_per_second;
}

}  // namespace

absl::StatusOr<std::vector<Bars>> ScalingBars(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<json> lines, LinesOf(path));
  std::map<std::pair<std::string, int>, Bars> charts;
  for (const json& line : lines) {
    const auto strategy = ValueOf(line, "strategy", std::string());
    const int workers = ValueOf(line, "workers", 0);
    ASSIGN_OR_RETURN(const Model model, MakeModel(ValueOf(line, "model", std::string())));
    const auto predicted = Predicted(line, model, workers);
    if (!predicted.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", line.dump(), ": ", predicted.status().message()));
    }
    Bars& bars = charts[{model.name, workers}];
    bars.title = absl::StrFormat("%s, %d workers, %d hosts, links of %.2f Gbit/s", model.name, workers,
                                 ValueOf(line, "hosts", workers), ValueOf(line, "gbits", 0.0));
    bars.x_label = absl::StrFormat("images per second, all workers (one worker alone: %.1f)",
                                   ValueOf(line, "batch", 0) / ComputeSeconds(model, SettingOf(line)));
    const bool served = strategy.find("server") != std::string::npos;
    bars.bars.push_back({.label = served ? strategy : absl::StrCat("allreduce: ", strategy),
                         .colour = served ? 4 : 0,
                         .measured = ValueOf(line, "images_per_s", 0.0),
                         .predicted = *predicted});
  }
  std::vector<Bars> all;
  for (auto& [key, bars] : charts) all.push_back(std::move(bars));
  return all;
}

absl::StatusOr<std::vector<Bars>> StragglerBars(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<json> lines, LinesOf(path));
  struct Rates {
    std::vector<double> measured, predicted;
  };
  std::vector<std::pair<std::pair<std::string, std::string>, Rates>> cases;  // in the order of the file
  for (const json& line : lines) {
    const std::pair key(ValueOf(line, "slow", std::string()), ValueOf(line, "consistency", std::string()));
    auto found = std::ranges::find(cases, key, &decltype(cases)::value_type::first);
    if (found == cases.end()) found = cases.insert(cases.end(), {key, {}});
    found->second.measured.push_back(ValueOf(line, "steps_per_s", 0.0));
    found->second.predicted.push_back(ValueOf(line, "predicted_steps_per_s", 0.0));
  }
  std::vector<Bars> charts;
  const json& first = lines.front();
  for (auto& [key, rates] : cases) {
    const std::string title = absl::StrFormat("%d workers, %g ms a step: %s", ValueOf(first, "workers", 0),
                                              ValueOf(first, "compute_ms", 0.0), key.first);
    auto chart = std::ranges::find(charts, title, &Bars::title);
    if (chart == charts.end()) chart = charts.insert(charts.end(), {title, "steps per second, all workers", {}});
    chart->bars.push_back(
        {.label = key.second, .colour = 4, .measured = Median(rates.measured), .predicted = Median(rates.predicted)});
  }
  return charts;
}

}  // namespace gyre::bench
