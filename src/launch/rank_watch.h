// RankWatch: what a host does for the ranks that it runs besides running them: it says where they may run, takes their
// reports, measures what they use, and has their stacks taken. The launcher has one for its own ranks, each agent one
// for its. Not thread-safe; never blocks, but for FindGpus and the moment that a look at
// /proc takes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launch/gpus.h"
#include "launch/placement.h"
#include "launch/poller.h"
#include "launch/rank_process.h"
#include "launch/rank_report.h"

namespace gyre::launch {

struct WatchSettings {
  BindTo bind = BindTo::kNone;
  MapBy map = MapBy::kCore;
  bool report_bindings = false;
  std::chrono::milliseconds sample{0};  // between two looks at what ranks use; 0: none
};

// What a host tells of its ranks while they run.
class WatchEvents {
 public:
  virtual ~WatchEvents() = default;
  virtual void OnReport(const RankReport& report) = 0;
  virtual void OnUsage(TimePoint when, const std::vector<RankUsage>& usage) = 0;
  virtual void OnNote(std::string_view lines) = 0;  // for people; whole lines
};

class RankWatch {
 public:
  // Both must outlive it.
  RankWatch(Poller& poller, WatchEvents& events) : poller_(poller), events_(events) {}

  // Once; may take seconds where there are many GPUs, so an agent calls it while nobody counts its silence. What went
  // wrong is noted by Prepare, which calls it, too, for a job that is measured.
  void FindGpus();

  // Of the ranks that are about to start here. Notes what becomes of --bind-to.
  absl::Status Prepare(const WatchSettings& settings, int first, int count);

  int report_fd() const { return ranks_end_.get(); }  // for the ranks to inherit
  std::vector<int> CpusOf(int rank) const;            // empty: all
  void OnStarted(int rank, pid_t pid);
  void OnEnded(int rank);  // before it is reaped

  void OnEvent(PollKey key);  // kReports, kTool
  std::optional<TimePoint> next() const;
  void OnTime(TimePoint now);

  // The stacks of all ranks that live come as a note, some seconds later. While they are under way it does nothing.
  void TakeStacks(TimePoint now);

 private:
  struct Rank {
    pid_t pid = 0;
    bool alive = false;
    uint64_t memory = 0;            // as of the last look
    std::optional<GpuUsage> gpu{};  // likewise
  };

  void ReadReports();
  void ReadTool();
  void EndTool();
  void Measure(const std::vector<int>& which);
  std::vector<int> Living() const;

  Poller& poller_;
  WatchEvents& events_;
  WatchSettings settings_;
  int first_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Binding> bindings_;
  UniqueFd own_end_;
  UniqueFd ranks_end_;
  std::optional<TimePoint> next_sample_;
  std::unique_ptr<Gpus> gpus_;  // none where there are none
  bool gpus_sought_ = false;
  std::string gpus_note_;            // why there are none, until it is noted
  std::optional<RankProcess> tool_;  // takes stacks
  std::string tool_text_;
  TimePoint tool_end_{};
};

}  // namespace gyre::launch
