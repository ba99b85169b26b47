// The guard: the process that the user sees as gyrerun. It starts the supervisor, passes signals on to it, and if the
// supervisor dies, ends all that it has left behind. If the guard dies, the supervisor ends the job. So whichever of
// the two is killed (by whatever means), nothing of the job stays; only if both are at the very same time, processes
// that the ranks have started may.
#pragma once

#include <string>

#include "launch/options.h"

namespace gyre::launch {

// Runs the job and returns gyrerun's exit code. Call from a process with one thread.
int RunGuarded(const Options& options, const std::string& path);

}  // namespace gyre::launch
