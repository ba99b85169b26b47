#include "runtime/network_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace gyre::internal {

bool operator==(const NetworkReport& a, const NetworkReport& b) {
  return Encode(a) == Encode(b);
}

std::string Encode(const NetworkReport& report) {
  nlohmann::json json = {
      {"algorithms", report.algorithms}, {"streams", report.streams}, {"reduced", report.reduced_per_second}};
  if (report.slowest) json["link"] = {report.slowest->latency, report.slowest->bytes_per_second};
  if (report.by_tcp) json["link_by_tcp"] = {report.by_tcp->latency, report.by_tcp->bytes_per_second};
  if (!report.ucx_failure.empty()) json["ucx_failure"] = report.ucx_failure;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // what a library says may be any bytes
}

absl::StatusOr<NetworkReport> DecodeNetworkReport(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto is_number = [](const nlohmann::json& value) { return value.is_number() && value.get<double>() >= 0; };
  const auto wrong = [] { return absl::DataLossError("a rank's report of the network cannot be read"); };
  if (!json.is_object() || !json.contains("algorithms") || !json["algorithms"].is_string()) return wrong();
  if (!json.contains("reduced") || !is_number(json["reduced"])) return wrong();
  if (!json.contains("streams") || !json["streams"].is_number_integer()) return wrong();
  NetworkReport report{
      .algorithms = json["algorithms"], .streams = json["streams"], .reduced_per_second = json["reduced"]};
  const std::pair<const char*, std::optional<LinkFit>*> links[] = {{"link", &report.slowest},
                                                                   {"link_by_tcp", &report.by_tcp}};
  for (const auto& [key, fit] : links) {
    if (!json.contains(key)) continue;
    const nlohmann::json& link = json[key];
    if (!link.is_array() || link.size() != 2 || !std::ranges::all_of(link, is_number)) return wrong();
    *fit = LinkFit{link[0], link[1]};
  }
  if (!json.contains("ucx_failure")) return report;
  if (!json["ucx_failure"].is_string()) return wrong();
  report.ucx_failure = json["ucx_failure"];
  return report;
}

std::vector<NetworkReport> ByTcp(std::vector<NetworkReport> reports) {
  for (NetworkReport& report : reports) report.slowest = report.by_tcp;
  return reports;
}

absl::StatusOr<PathModel> AgreeOnModel(const std::vector<NetworkReport>& reports) {
  PathModel model;
  std::optional<LinkFit> slowest;
  double reduced = 0;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const NetworkReport& report = reports[rank];
    if (report.algorithms != reports[0].algorithms) {
      return absl::InvalidArgumentError(absl::StrCat("GYRE_ALGORITHMS (algorithms) differ: \"", reports[0].algorithms,
                                                     "\" on rank 0, \"", report.algorithms, "\" on rank ", rank));
    }
    if (report.streams != reports[0].streams) {
      return absl::InvalidArgumentError(absl::StrCat("GYRE_STREAMS (streams) differ: ", reports[0].streams,
                                                     " on rank 0, ", report.streams, " on rank ", rank));
    }
    if (report.reduced_per_second > 0) {
      reduced = reduced > 0 ? std::min(reduced, report.reduced_per_second) : report.reduced_per_second;
    }
    if (report.slowest && !slowest) slowest = report.slowest;
    if (report.slowest) {
      slowest->latency = std::max(slowest->latency, report.slowest->latency);
      slowest->bytes_per_second = std::min(slowest->bytes_per_second, report.slowest->bytes_per_second);
    }
  }
  if (slowest && slowest->bytes_per_second > 0) {
    model.latency = slowest->latency;
    model.bytes_per_second = slowest->bytes_per_second;
  }
  if (reduced > 0) model.reduced_per_second = reduced;
  return model;
}

std::vector<std::pair<int, int>> MeasuredPairs(int hosts) {
  std::vector<std::pair<int, int>> pairs;
  for (int host = 0; host + 1 < hosts; host += 2) pairs.emplace_back(host, host + 1);
  if (hosts % 2 == 1 && hosts > 1) pairs.emplace_back(hosts - 1, 0);
  return pairs;
}

}  // namespace gyre::internal
