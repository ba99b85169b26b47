#include "collectives/pricing/price.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/pricing/closed_form.h"
#include "commands.h"
#include "gyre/status_macros.h"
#include "nlohmann/json.hpp"
#include "output_file.h"
#include "sizes.h"

namespace gyre::bench {

namespace {

using internal::PricedAlgorithm;
using internal::PriceModel;

struct PricedRow {
  const PricedAlgorithm& algorithm;
  int ranks;
  int64_t bytes;
  double seconds;
  std::optional<double> closed_form;  // seconds
  double took;                        // seconds to find out
  bool extrapolated;
};

std::string Microseconds(const std::optional<double>& seconds) {
  return seconds ? absl::StrFormat("%.2f", *seconds * 1e6) : "-";
}

void PrintPrice(const PricedRow& row, std::FILE* json) {
  const std::string operation(row.algorithm.operation), name(row.algorithm.name);
  const double formula = row.closed_form.value_or(0), ratio = formula > 0 ? row.seconds / formula : 0;  // 0: none
  absl::PrintF("%15s %-18s %8d %12d %14s %14s %7s %8.2f%s\n", operation, name, row.ranks, row.bytes,
               Microseconds(row.seconds), Microseconds(row.closed_form),
               ratio > 0 ? absl::StrFormat("x%.3f", ratio) : "-", row.took,
               row.extrapolated ? "  from shorter blocks" : "");
  std::fflush(stdout);
  if (json == nullptr) return;
  nlohmann::ordered_json line = {{"lib", "gyre"},        {"op", operation},    {"algorithm", name},
                                 {"ranks", row.ranks},   {"bytes", row.bytes}, {"time_us", row.seconds * 1e6},
                                 {"closed_form_us", {}}, {"ratio", {}},        {"extrapolated", row.extrapolated},
                                 {"pricing_s", row.took}};
  if (row.closed_form) line["closed_form_us"] = formula * 1e6;
  if (ratio > 0) line["ratio"] = ratio;
  absl::FPrintF(json, "%s\n", line.dump());
}

// Says so where it has too many steps, and goes on.
void PriceOne(const PricedAlgorithm& algorithm, int ranks, int64_t bytes, const PriceModel& model, std::FILE* json) {
  const auto begin = std::chrono::steady_clock::now();
  const int64_t block_bytes = algorithm.BlockBytes(ranks, bytes);
  const auto price =
      internal::PriceOfAlike([&](int rank) { return algorithm.make(rank, ranks); }, ranks, block_bytes, model);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (!price.ok()) {
    absl::PrintF("%15s %-18s %8d %12d  %s\n", std::string(algorithm.operation), std::string(algorithm.name), ranks,
                 bytes, std::string(price.status().message()));
    return;
  }
  PrintPrice({algorithm, ranks, bytes, price->seconds, algorithm.closed_form(ranks, block_bytes, model), took.count(),
              price->extrapolated},
             json);
}

}  // namespace

absl::Status RunPrice(const PriceOptions& options, const std::string& command) {
  ASSIGN_OR_RETURN(const int64_t begin, ParseSize(options.begin));
  ASSIGN_OR_RETURN(const int64_t end, ParseSize(options.end));
  ASSIGN_OR_RETURN(const OutputFile json, OpenOutputFile(options.json));
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizeRange(begin, end, options.factor));
  const PriceModel model{
      .link = {std::chrono::nanoseconds(std::llround(options.latency * 1e3)), options.bandwidth * 1e9 / 8},
      .reduced_bytes_per_second = options.reduction * 1e9};
  absl::PrintF("# %s; simulated: %g us, %g Gbit/s each way, %g GB/s reduced, nothing in each other's way\n", command,
               options.latency, options.bandwidth, options.reduction);
  absl::PrintF("#%14s %-18s %8s %12s %14s %14s %7s %8s\n", "operation", "algorithm", "ranks", "size", "time",
               "closed form", "ratio", "pricing");
  absl::PrintF("#%14s %-18s %8s %12s %14s %14s %7s %8s\n", "", "", "", "(B)", "(us)", "(us)", "", "(s)");
  for (const PricedAlgorithm& algorithm : internal::PricedAlgorithms()) {
    if (options.operation != "all" && options.operation != algorithm.operation) continue;
    for (const int ranks : options.ranks) {
      if (algorithm.operation == "barrier") {
        PriceOne(algorithm, ranks, 0, model, json.get());
        continue;
      }
      for (const int64_t bytes : sizes) PriceOne(algorithm, ranks, bytes, model, json.get());
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench
