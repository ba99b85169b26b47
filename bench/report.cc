#include "report.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gyre/status_macros.h"
#include "nlohmann/json.hpp"
#include "or_null.h"

namespace gyre::bench {

namespace {

std::string ReductionOf(const Task& task) {
  return Reduces(task.operation) ? std::string(ReduceOpName(task.op)) : "none";
}

int RootOf(const Task& task) {
  return HasRoot(task.operation) ? task.root : -1;
}

std::string OrNotKnown(const std::optional<int64_t>& value) {
  return value ? absl::StrCat(*value) : "N/A";
}

// Over one host nothing goes by a wire.
std::string Wire(int hosts, const std::optional<Measurement>& m) {
  return hosts == 1 ? "" : absl::StrFormat(" %11s", m ? OrNotKnown(m->wire_bytes) : "N/A");
}

std::string Half(int hosts, const std::optional<Measurement>& m) {
  const std::string wire = Wire(hosts, m);
  if (!m) return absl::StrFormat("%8s %8s %8s%s %6s", "N/A", "N/A", "N/A", wire, "N/A");
  return absl::StrFormat("%8.2f %8.2f %8.2f%s %6s", m->times.median, m->algbw(), m->busbw(), wire,
                         OrNotKnown(m->wrong));
}

std::string Ratio(const std::optional<Measurement>& m) {
  return m && m->ratio ? absl::StrFormat("x%.2f", *m->ratio) : "";
}

}  // namespace

std::string ToJson(const Measurement& m) {
  nlohmann::ordered_json json;
  json["lib"] = m.lib;
  json["op"] = OperationName(m.task.operation);
  json["ranks"] = m.task.ranks;
  json["hosts"] = m.hosts;
  json["bytes"] = m.task.bytes();
  json["count"] = m.task.count;
  json["dtype"] = DTypeName(m.task.dtype);
  json["redop"] = ReductionOf(m.task);
  json["root"] = RootOf(m.task);
  json["buffers"] = m.buffers;
  json["in_place"] = m.in_place;
  json["time_us_min"] = m.times.min;
  json["time_us_med"] = m.times.median;
  json["time_us_p99"] = m.times.p99;
  json["algbw_gbs"] = m.algbw();
  json["busbw_gbs"] = m.busbw();
  json["wire_bytes"] = OrNull(m.wire_bytes);
  json["wrong"] = OrNull(m.wrong);
  json["ratio"] = OrNull(m.ratio);
  return json.dump();
}

std::string ToColumns(const std::optional<Measurement>& out_of_place, const std::optional<Measurement>& in_place) {
  const Measurement& any = out_of_place ? *out_of_place : *in_place;
  return absl::StrFormat("%12d %11d %6s %8s %5d %s %s  %7s %7s  %s %s", any.task.bytes(), any.task.count,
                         DTypeName(any.task.dtype), ReductionOf(any.task), RootOf(any.task),
                         Half(any.hosts, out_of_place), Half(any.hosts, in_place), Ratio(out_of_place), Ratio(in_place),
                         any.lib, any.buffers);
}

absl::StatusOr<std::unique_ptr<Report>> Report::OpenOnRankZero(const std::string& json_path, const std::string& command,
                                                               const Communicator& world) {
  if (world.rank() != 0) return nullptr;
  auto report = std::make_unique<Report>();
  ASSIGN_OR_RETURN(report->json_, OpenOutputFile(json_path));
  PrintHead(command, world.size(), world.node_count());
  return report;
}

void Report::PrintHead(const std::string& command, int ranks, int hosts) {
  absl::PrintF("# %s; %d rank%s on %d host%s; times are medians of the slowest rank\n", command, ranks,
               ranks == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s");
  // A half's columns: over several hosts one more, as wide as Wire makes it.
  const int extra = hosts == 1 ? 0 : 12;
  const std::string wire = hosts == 1 ? "" : absl::StrFormat(" %11s", "wire");
  const std::string wire_unit = hosts == 1 ? "" : absl::StrFormat(" %11s", "(B a host)");
  absl::PrintF("#%45s%*s%*s\n", "", 34 + extra, "out-of-place            ", 35 + extra, "in-place             ");
  const std::string half = absl::StrFormat("%8s %8s %8s%s %6s", "time", "algbw", "busbw", wire, "#wrong");
  absl::PrintF("#%11s %11s %6s %8s %5s %s %s  %15s  %s\n", "size", "count", "type", "redop", "root", half, half,
               "time ratios", "library");
  const std::string units = absl::StrFormat("%8s %8s %8s%s %6s", "(us)", "(GB/s)", "(GB/s)", wire_unit, "");
  absl::PrintF("#%11s %11s %6s %8s %5s %s %s  %7s %7s\n", "(B)", "(elements)", "", "", "", units, units, "out-of",
               "in");
}

void Report::Row(const std::optional<Measurement>& out_of_place, const std::optional<Measurement>& in_place) {
  absl::PrintF("%s\n", ToColumns(out_of_place, in_place));
  std::fflush(stdout);
  if (json_ == nullptr) return;
  for (const auto* each : {&out_of_place, &in_place}) {
    if (*each) absl::FPrintF(json_.get(), "%s\n", ToJson(**each));
  }
  std::fflush(json_.get());
}

}  // namespace gyre::bench
