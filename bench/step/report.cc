#include "step/report.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gyre/status_macros.h"
#include "nlohmann/json.hpp"
#include "or_null.h"

namespace gyre::bench {

std::optional<double> StepMeasurement::efficiency() const {
  if (compute_us <= 0) return std::nullopt;
  return compute_us / times.median;
}

std::string ToJson(const StepMeasurement& m) {
  nlohmann::ordered_json json;
  json["lib"] = m.lib;
  json["op"] = "step";
  json["model"] = m.model;
  json["buffers"] = m.buffers;
  json["ranks"] = m.ranks;
  json["hosts"] = m.hosts;
  json["bytes"] = m.bytes;
  json["tensors"] = m.tensors;
  json["compression"] = m.compression;
  json["compute"] = m.compute;
  json["compute_us"] = m.compute_us;
  json["time_us_min"] = m.times.min;
  json["time_us_med"] = m.times.median;
  json["time_us_p99"] = m.times.p99;
  json["time_us_mean"] = m.times.mean;
  json["exposed_us_med"] = m.exposed_us();
  json["efficiency"] = OrNull(m.efficiency());
  json["copied_bytes"] = m.copied_bytes;
  json["wrong"] = OrNull(m.wrong);
  json["ratio"] = OrNull(m.ratio);
  return json.dump();
}

std::string ToColumns(const StepMeasurement& m) {
  const auto efficiency = m.efficiency();
  return absl::StrFormat("%-16s %-7s %10.0f %10.0f %10.0f %10.0f %10.0f %6s %9.1f %6s %7s", m.lib, m.buffers,
                         m.times.min, m.times.median, m.times.p99, m.compute_us, m.exposed_us(),
                         efficiency ? absl::StrFormat("%.3f", *efficiency) : "-",
                         static_cast<double>(m.copied_bytes) * 1e-6, m.wrong ? absl::StrCat(*m.wrong) : "N/A",
                         m.ratio ? absl::StrFormat("x%.2f", *m.ratio) : "");
}

absl::StatusOr<std::unique_ptr<StepReport>> StepReport::OpenOnRankZero(const std::string& json_path,
                                                                       const std::string& command,
                                                                       const Communicator& world) {
  if (world.rank() != 0) return nullptr;
  auto report = std::make_unique<StepReport>();
  ASSIGN_OR_RETURN(report->json_, OpenOutputFile(json_path));
  absl::PrintF("# %s; %d ranks on %d hosts; times of the slowest rank in us\n", command, world.size(),
               world.node_count());
  return report;
}

void StepReport::Head(const Model& model) {
  absl::PrintF("# %s (%s): %d gradients, %.1f MB, %.2f GFLOP forward\n", model.name, model.variant,
               model.parameters.size(), static_cast<double>(model.count()) * 4e-6, model.forward_flops() * 1e-9);
  absl::PrintF("%-16s %-7s %10s %10s %10s %10s %10s %6s %9s %6s %7s\n", "# library", "buffers", "min", "median", "p99",
               "compute", "exposed", "effic.", "copied MB", "#wrong", "ratio");
}

void StepReport::Row(const StepMeasurement& measurement) {
  absl::PrintF("%s\n", ToColumns(measurement));
  std::fflush(stdout);
  if (json_ == nullptr) return;
  absl::FPrintF(json_.get(), "%s\n", ToJson(measurement));
  std::fflush(json_.get());
}

}  // namespace gyre::bench
