// What the ranks of several hosts tell each other before they choose algorithms: what each has measured, and what it
// was told to use. Pure, but for the measuring.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/hierarchical/link_fit.h"
#include "collectives/selection/selector.h"

namespace gyre::internal {

// One rank's part.
struct NetworkReport {
  std::string algorithms{};          // ForcedAlgorithms::ToString
  int streams = 1;                   // between two ranks
  double reduced_per_second = 0;     // bytes; 0: not measured
  std::optional<LinkFit> slowest{};  // of the links that it led the measurement of
  std::optional<LinkFit> by_tcp{};   // likewise by TCP, where UCX carries data and the two are compared
  std::string ucx_failure{};         // why UCX, which nobody forces, cannot carry this rank's data

  friend bool operator==(const NetworkReport& a, const NetworkReport& b);
};

std::string Encode(const NetworkReport& report);
absl::StatusOr<NetworkReport> DecodeNetworkReport(const std::string& text);

// All ranks agree on the slowest that anybody has measured, each number for itself; on nominal ones where nobody has.
// `reports`: by rank of the job. kInvalidArgument names two ranks that are to use different algorithms, or numbers of
// streams, and which.
absl::StatusOr<PathModel> AgreeOnModel(const std::vector<NetworkReport>& reports);

// The same reports with what was measured by TCP in place of the rest.
std::vector<NetworkReport> ByTcp(std::vector<NetworkReport> reports);

// Which hosts measure together: each with the next, so that every host has a part in it; at any time a host is in one
// measurement. The first of a pair leads.
std::vector<std::pair<int, int>> MeasuredPairs(int hosts);

}  // namespace gyre::internal
