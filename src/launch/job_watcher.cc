#include "launch/job_watcher.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launch/now.h"
#include "launch/whole_file.h"

namespace gyre::launch {

namespace {

constexpr Duration kBetweenBoardLooks = std::chrono::seconds(1);
constexpr size_t kUsualWidth = 80;

// What knows no escape sequences gets no status line.
bool ShowsStatus() {
  const char* kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb" && *kind != '\0';
}

size_t Width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualWidth;
}

}  // namespace

JobWatcher::JobWatcher(const WatchOptions& options, std::string job, int ranks, std::function<void(Phase)> on_phase)
    : options_(options), on_phase_(std::move(on_phase)), terminal_(ShowsStatus()), board_(ranks) {
  board_.set_job(std::move(job));
}

absl::Status JobWatcher::Open() {
  if (!options_.trace_usage.empty()) {
    ASSIGN_OR_RETURN(trace_, UsageTrace::Open(options_.trace_usage, board_.size()));
  }
  if (options_.metrics_file.empty()) return absl::OkStatus();
  return Annotate(WriteWholeFile(options_.metrics_file, board_.Metrics()), "--metrics-file");
}

void JobWatcher::BeginRun(OutputMux& output, uint64_t epoch) {
  output_ = &output;
  board_.set_epoch(epoch);
}

void JobWatcher::OnStarted(TimePoint now) {
  running_ = true;
  last_report_ = now;
  next_look_ = now + kBetweenBoardLooks;
  hang_told_.reset();
  board_.OnStarted();
  if (trace_) trace_->Begin(now);
  metrics_due_ = true;
}

void JobWatcher::OnRankEnded(int rank) {
  board_.OnRankEnded(rank);
  metrics_due_ = true;
}

void JobWatcher::EndRun() {
  if (output_ != nullptr) {
    output_->SetStatusLine("");
    output_->Flush();
  }
  output_ = nullptr;
  running_ = false;
}

void JobWatcher::OnPhase(Phase phase, std::optional<int> exit_code) {
  board_.set_phase(phase);
  if (exit_code) board_.set_end(*exit_code);
  WriteMetrics();
}

void JobWatcher::OnReport(const RankReport& report) {
  last_report_ = Now();
  board_.OnReport(report, last_report_);
  if (report.phase && report.rank == 0 && on_phase_) on_phase_(*report.phase);
  metrics_due_ = true;
}

void JobWatcher::OnUsage(TimePoint when, const std::vector<RankUsage>& usage) {
  if (!trace_) return;
  for (const RankUsage& rank : usage) Warn(trace_->Add(when, rank, board_.activity(rank.rank)));
}

void JobWatcher::OnNote(std::string_view lines) {
  if (output_ == nullptr) return;
  for (const absl::string_view line : absl::StrSplit(ToAbsl(lines), '\n', absl::SkipEmpty())) {
    output_->Say(std::string_view(line.data(), line.size()));
  }
}

std::optional<TimePoint> JobWatcher::next() const {
  if (!running_) return std::nullopt;
  const bool looks = terminal_ || options_.stack_on_hang || !options_.metrics_file.empty();
  return looks ? std::optional(next_look_) : std::nullopt;
}

void JobWatcher::OnTime(TimePoint now) {
  if (!running_ || now < next_look_) return;
  next_look_ = now + kBetweenBoardLooks;
  if (options_.stack_on_hang) next_look_ = std::min(next_look_, now + Duration(*options_.stack_on_hang) / 4);
  if (terminal_ && output_ != nullptr) {
    output_->SetStatusLine(absl::StrCat("gyrerun: ", board_.StatusLine(now)).substr(0, Width() - 1));
  }
  if (!metrics_due_ || now < next_metrics_) return;
  next_metrics_ = now + kBetweenBoardLooks;
  WriteMetrics();
}

bool JobWatcher::HangBegins(TimePoint now) {
  if (!running_ || !options_.stack_on_hang || output_ == nullptr) return false;
  const TimePoint moved = std::max(last_report_, output_->last_output());
  if (now - moved < *options_.stack_on_hang || hang_told_ == moved) return false;
  hang_told_ = moved;
  return true;
}

void JobWatcher::WriteMetrics() {
  metrics_due_ = false;
  if (options_.metrics_file.empty() || metrics_lost_) return;
  const absl::Status written = WriteWholeFile(options_.metrics_file, board_.Metrics());
  metrics_lost_ = !written.ok();
  Warn(Annotate(written, "--metrics-file"));
}

void JobWatcher::Warn(const absl::Status& status) {
  if (!status.ok() && output_ != nullptr) output_->Say(std::string(status.message()));
}

}  // namespace gyre::launch
