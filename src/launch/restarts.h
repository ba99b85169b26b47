// Runs a job, and runs it again where it failed and may: --max-restarts. Each time is a new epoch of the same job
// (docs/architecture.md: Epochs), so that whoever is left over from before is fenced off.
#pragma once

#include "base/clock.h"
#include "launch/supervisor.h"

namespace gyre::launch {

// How long to wait before restart number `restart` (from 1): `first`, doubled each time, 60 s at most, and then between
// half and one and a half of it, as `random` (0 to 1) has it: jobs that fell together shall not rise together. Pure.
Duration RestartPause(int restart, Duration first, double random);

// Returns gyrerun's exit code: that of the last run, or, between two, 128 + N if signal N came, or kExitTimeout if the
// job's time was over. Keeps the status file, and leaves a summary in the container's termination log where there is
// one. All else as Supervise.
int RunJob(SupervisorContext context);

}  // namespace gyre::launch
