// The guard: the process that the user sees as gyrerun (or as its agent). It starts the supervisor, passes signals on
// to it, and if the supervisor dies, ends all that it has left behind. If the guard dies, the supervisor ends the job.
// So whichever of the two is killed (by whatever means), nothing of the job stays; only if both are at the very same
// time, processes that the ranks have started may.
#pragma once

#include <functional>

#include "base/clock.h"

namespace gyre::launch {

// The supervisor's work; what it returns is its exit code. The descriptor is readable once the guard has died.
using SuperviseBody = std::function<int(int guard_pidfd)>;

// Runs `body` in a process below this one, and returns gyrerun's exit code. `grace`: how long the job may take to end
// once it was asked to. `hangup_fd`: if not -1, its hang-up asks for the end, too. Call from a process with one thread.
int RunGuarded(Duration grace, int hangup_fd, const SuperviseBody& body);

}  // namespace gyre::launch
