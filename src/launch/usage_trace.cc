#include "launch/usage_trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/read_file.h"
#include "base/status.h"
#include "launch/hosts.h"
#include "launch/report.h"

namespace gyre::launch {

namespace {

constexpr char kHeader[] = "seconds,interval,rank,cpus,memory_bytes,activity,gpus,gpu_memory_bytes";
constexpr size_t kLargestTrace = size_t{4} << 30;  // bytes
constexpr double kShortestTraceInterval = 1e-3;  // seconds: what is used in less cannot be told from the clock's ticks

// No rank uses more, and no job lasts longer. A larger value is a mistake, and its sums could overflow.
constexpr double kMostSeconds = 1e10;
constexpr double kMostProcessors = 1e5;
constexpr double kMostBytes = 1e18;

bool ParseAmount(absl::string_view cell, double most, double& value) {
  return absl::SimpleAtod(cell, &value) && IsAmount(value) && value <= most;
}

bool ParseOptional(absl::string_view cell, double most, double& value) {
  return cell.empty() || ParseAmount(cell, most, value);
}

bool ParseRow(absl::string_view line, UsageRow& row) {
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  if (cells.size() != 8) return false;
  row.activity = std::string(cells[5]);
  return ParseAmount(cells[0], kMostSeconds, row.seconds) && ParseAmount(cells[1], kMostSeconds, row.interval) &&
         row.interval > 0 && absl::SimpleAtoi(cells[2], &row.rank) && row.rank >= 0 && row.rank < kMaxJobRanks &&
         ParseAmount(cells[3], kMostProcessors, row.cpus) && ParseAmount(cells[4], kMostBytes, row.memory) &&
         IsActivity(row.activity) && ParseOptional(cells[6], kMostProcessors, row.gpus) &&
         ParseOptional(cells[7], kMostBytes, row.gpu_memory);
}

}  // namespace

absl::StatusOr<std::vector<UsageRow>> ParseUsageTrace(std::string_view text, std::string_view file) {
  std::vector<UsageRow> rows;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(ToAbsl(text), '\n')) {
    ++number;
    if (line.empty() || (number == 1 && line == kHeader)) continue;
    UsageRow row;
    if (number == 1 || !ParseRow(line, row)) {
      return absl::InvalidArgumentError(absl::StrCat(
          OneLine(file), ":", number, ": no row of a trace of usage; try: gyrerun --trace-usage FILE ..."));
    }
    rows.push_back(std::move(row));
  }
  if (rows.empty())
    return absl::InvalidArgumentError(absl::StrCat(OneLine(file), ": the trace is empty; try: a longer run"));
  return rows;
}

absl::StatusOr<std::vector<UsageRow>> ReadUsageTrace(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kLargestTrace);
  if (text.ok()) return ParseUsageTrace(*text, path);
  return absl::InvalidArgumentError(
      absl::StrCat(OneLine(std::string(text.status().message())), ": cannot be read; try: ls -l ", OneLine(path)));
}

absl::StatusOr<UsageTrace> UsageTrace::Open(const std::string& path, int ranks) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  const std::string header = absl::StrCat(kHeader, "\n");
  if (!fd || write(fd.get(), header.data(), header.size()) != static_cast<ssize_t>(header.size())) {
    return ErrnoStatus(absl::StrCat("--trace-usage ", path));
  }
  return UsageTrace(path, std::move(fd), ranks);
}

void UsageTrace::Begin(TimePoint now) {
  if (!begun_) start_ = now;
  begun_ = true;
  for (Before& rank : before_) rank = {};
}

absl::Status UsageTrace::Add(TimePoint when, const RankUsage& usage, const std::string& activity) {
  if (usage.rank < 0 || static_cast<size_t>(usage.rank) >= before_.size() || !fd_) return absl::OkStatus();
  Before& before = before_[static_cast<size_t>(usage.rank)];
  const Before last = before;
  const double interval = std::chrono::duration<double>(when - last.when).count();
  if (last.known && interval < kShortestTraceInterval) return absl::OkStatus();
  before = {true, when, usage.cpu_seconds};
  if (!last.known) return absl::OkStatus();  // rows are about the time between two looks
  // What a child of a child has used is lost where nobody reaped it: then there is less than before.
  const double cpus = std::max(0.0, usage.cpu_seconds - last.cpu_seconds) / interval;
  const std::string gpu = usage.gpu ? absl::StrFormat("%.3f,%d", usage.gpu->gpus, usage.gpu->memory) : ",";
  const std::string row =
      absl::StrFormat("%.3f,%.3f,%d,%.3f,%d,%s,%s\n", std::chrono::duration<double>(when - start_).count(), interval,
                      usage.rank, cpus, usage.memory, activity, gpu);
  if (write(fd_.get(), row.data(), row.size()) == static_cast<ssize_t>(row.size())) return absl::OkStatus();
  fd_.Reset();
  return ErrnoStatus(absl::StrCat("--trace-usage ", path_));
}

}  // namespace gyre::launch
