#include "report.h"

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace gyre::bench {

Times Summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto at = [&](double quantile) {
    return samples[static_cast<size_t>(std::lround(quantile * static_cast<double>(samples.size() - 1)))];
  };
  return {samples.front(), at(0.5), at(0.99)};
}

std::string ToJson(const Measurement& m) {
  nlohmann::ordered_json json;
  json["lib"] = m.lib;
  json["op"] = m.op;
  json["ranks"] = m.ranks;
  json["hosts"] = m.hosts;
  json["bytes"] = m.bytes;
  json["dtype"] = m.dtype;
  json["redop"] = m.redop;
  json["buffers"] = m.buffers;
  json["in_place"] = m.in_place;
  json["time_us_min"] = m.times.min;
  json["time_us_med"] = m.times.median;
  json["time_us_p99"] = m.times.p99;
  json["algbw_gbs"] = m.algbw();
  json["busbw_gbs"] = m.busbw();
  json["wrong"] = m.wrong ? nlohmann::ordered_json(*m.wrong) : nlohmann::ordered_json(nullptr);
  return json.dump();
}

absl::StatusOr<std::unique_ptr<Report>> Report::Open(const std::string& json_path) {
  auto report = std::make_unique<Report>();
  if (!json_path.empty()) {
    report->json_.reset(std::fopen(json_path.c_str(), "w"));
    if (report->json_ == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", json_path));
  }
  return report;
}

void Report::Header(const std::string& command, int ranks, int hosts) {
  absl::PrintF("# %s; %d ranks on %d host%s; times are medians of the slowest rank\n", command, ranks, hosts,
               hosts == 1 ? "" : "s");
  absl::PrintF("#%40s%34s%34s\n", "", "out-of-place            ", "in-place             ");
  absl::PrintF("#%11s %11s %6s %8s %5s %8s %8s %8s %6s %8s %8s %8s %6s  %s\n", "size", "count", "type", "redop", "root",
               "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", "library");
  absl::PrintF("#%11s %11s %6s %8s %5s %8s %8s %8s %6s %8s %8s %8s %6s\n", "(B)", "(elements)", "", "", "", "(us)",
               "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

void Report::Row(const Measurement& out_of_place, const Measurement& in_place, std::optional<double> ratio) {
  const auto half = [](const Measurement& m) {
    return absl::StrFormat("%8.2f %8.2f %8.2f %6s", m.times.median, m.algbw(), m.busbw(),
                           m.wrong ? absl::StrCat(*m.wrong) : "N/A");
  };
  absl::PrintF("%12d %11d %6s %8s %5d %s %s  %s %s", in_place.bytes, in_place.count, in_place.dtype, in_place.redop, -1,
               half(out_of_place), half(in_place), in_place.lib, in_place.buffers);
  if (ratio) absl::PrintF("  x%.2f", *ratio);
  absl::PrintF("\n");
  std::fflush(stdout);
  if (json_ == nullptr) return;
  absl::FPrintF(json_.get(), "%s\n%s\n", ToJson(out_of_place), ToJson(in_place));
  std::fflush(json_.get());
}

}  // namespace gyre::bench
