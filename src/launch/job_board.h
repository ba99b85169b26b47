// JobBoard: what is known of a job while it runs, as a line for a terminal and as text for Prometheus. Pure; not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/rank_report.h"
#include "launch/status_file.h"

namespace gyre::launch {

class JobBoard {
 public:
  explicit JobBoard(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  int size() const { return static_cast<int>(ranks_.size()); }

  void OnStarted();  // all ranks run, for the first time or again
  void OnReport(const RankReport& report, TimePoint now);
  void OnRankEnded(int rank);
  void set_job(std::string id) { job_ = std::move(id); }
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }
  void set_phase(Phase phase) { phase_ = phase; }
  void set_end(int exit_code) { exit_code_ = exit_code; }

  const std::string& activity(int rank) const { return ranks_[static_cast<size_t>(rank)].activity; }

  // "4 of 4 ranks up, training, step 120 of 1000, loss 2.45, late: rank 3 (step 110)". The loss is that of the lowest
  // rank that says one. Late is the rank furthest behind, if it is two steps or more behind the first one and has said
  // nothing for a second.
  std::string StatusLine(TimePoint now) const;

  // In Prometheus's text format: gyre_job_phase, _ranks, _ranks_up, _restarts, _step (of the first and the last rank),
  // _steps, _loss, and, once it has ended, _exit_code.
  std::string Metrics() const;

 private:
  struct Rank {
    bool up = false;
    std::string activity{};
    std::optional<int64_t> step{};
    std::optional<int64_t> steps{};
    std::optional<double> loss{};
    TimePoint heard{};
  };
  const Rank* Late(TimePoint now) const;
  const Rank* First() const;  // the one with the highest step
  const Rank* Last() const;
  std::optional<double> Loss() const;
  size_t up() const;

  std::string job_;
  std::vector<Rank> ranks_;
  Phase phase_ = Phase::kQueued;
  uint64_t epoch_ = 0;
  std::optional<int> exit_code_;
};

}  // namespace gyre::launch
