// The supervisor: the process below gyrerun's guard that has the ranks started, carries their output, watches them end,
// and ends them.
#pragma once

#include <string>
#include <vector>

#include "launch/hosts.h"
#include "launch/options.h"

namespace gyre::launch {

struct SupervisorContext {
  const Options& options;
  std::string path;              // of the program; on other hosts it is looked up there
  std::vector<HostRanks> hosts;  // empty: all ranks on this one, without agents
  int guard_pidfd;               // readable once the guard has died
};

// Runs the job to its end and returns gyrerun's exit code. The signals of TakeSignals must be blocked. Blocks as long
// as the job runs, or, once it is to end, for settle + grace and some seconds at most.
int Supervise(const SupervisorContext& context);

}  // namespace gyre::launch
