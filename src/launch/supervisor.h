// The supervisor: the process below gyrerun's guard that starts the ranks, carries their output, watches them end,
// and ends them.
#pragma once

#include <sys/resource.h>

#include <string>

#include "launch/options.h"

namespace gyre::launch {

struct SupervisorContext {
  const Options& options;
  std::string path;  // of the program
  int guard_pidfd;   // readable once the guard has died
};

// Runs the job to its end and returns gyrerun's exit code. The signals of TakeSignals must be blocked. Blocks as long
// as the job runs, or, once it is to end, for settle + grace and some seconds at most.
int Supervise(const SupervisorContext& context);

}  // namespace gyre::launch
