// The supervisor: the process below gyrerun's guard that has the ranks started, carries their output, watches them end,
// and ends them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/hosts.h"
#include "launch/job.h"
#include "launch/job_watcher.h"
#include "launch/options.h"

namespace gyre::launch {

struct SupervisorContext {
  const Options& options;
  std::string path;                   // of the program; on other hosts it is looked up there
  std::vector<HostRanks> hosts;       // empty: all ranks on this one, without agents
  int guard_pidfd;                    // readable once the guard has died
  std::vector<HostSlots> slots = {};  // of all hosts that may be used
  JobKeys keys = {};
  std::optional<TimePoint> end_by = {};   // --timeout
  std::function<void()> on_started = {};  // the ranks start; may be empty
  JobWatcher* watcher = nullptr;          // not null
};

struct JobEnd {
  int code = 0;                     // for gyrerun to exit with
  bool started = false;             // the ranks were
  bool again = false;               // it failed in a way that another run may not
  std::vector<std::string> said{};  // why it ended, if not well: what was printed
  std::vector<std::string> lost{};  // hosts
};

// Runs the job once, to its end. The signals of TakeSignals must be blocked. Blocks as long as the job runs, or, once
// it is to end, for settle + grace and some seconds at most.
JobEnd Supervise(const SupervisorContext& context);

}  // namespace gyre::launch
