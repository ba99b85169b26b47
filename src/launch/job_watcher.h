// JobWatcher: the launcher's side of watching a job, over all of its runs: takes what hosts tell of their ranks, and
// keeps the status line, the metrics file and the trace of usage; and it notices when nothing moves any more. Not
// thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "launch/job_board.h"
#include "launch/output_mux.h"
#include "launch/rank_watch.h"
#include "launch/usage_trace.h"
#include "launch/watch_options.h"

namespace gyre::launch {

class JobWatcher final : public WatchEvents {
 public:
  // `options` must outlive it. `on_phase`: rank 0 says that the job is in that phase; may be empty.
  JobWatcher(const WatchOptions& options, std::string job, int ranks, std::function<void(Phase)> on_phase);

  // Opens its files. An error names the option and the file.
  absl::Status Open();

  // For one run. `output` takes what there is to say; it must live until EndRun.
  void BeginRun(OutputMux& output, uint64_t epoch);
  void OnStarted(TimePoint now);
  void OnRankEnded(int rank);
  void EndRun();  // the status line goes

  // The job is in that phase; once it is over, with gyrerun's exit code.
  void OnPhase(Phase phase, std::optional<int> exit_code);

  // WatchEvents, of hosts' clocks as they are here.
  void OnReport(const RankReport& report) override;
  void OnUsage(TimePoint when, const std::vector<RankUsage>& usage) override;
  void OnNote(std::string_view lines) override;

  std::optional<TimePoint> next() const;
  void OnTime(TimePoint now);
  // Once for each time that nothing has moved for --stack-on-hang: to have stacks taken.
  bool HangBegins(TimePoint now);

 private:
  void WriteMetrics();
  void Warn(const absl::Status& status);

  const WatchOptions& options_;
  const std::function<void(Phase)> on_phase_;
  const bool terminal_;  // there is one that shows a status line
  JobBoard board_;
  std::optional<UsageTrace> trace_;
  OutputMux* output_ = nullptr;
  bool running_ = false;
  TimePoint last_report_{};
  std::optional<TimePoint> hang_told_;  // what had moved last then
  TimePoint next_look_{};
  bool metrics_due_ = false;
  TimePoint next_metrics_{};
  bool metrics_lost_ = false;  // the file could not be written: that is said once
};

}  // namespace gyre::launch
