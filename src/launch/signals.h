// The signals that gyrerun takes, as descriptors, and their names.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace gyre::launch {

// Blocks INT, TERM, HUP, QUIT, USR1, USR2 and CHLD for the process and returns a non-blocking signalfd(2) for them;
// ignores PIPE, TSTP (a job on hold would be taken for frozen) and TTOU. But for CHLD, signals that gyrerun was started
// with as ignored stay so (nohup; INT in a script's background). Call before any thread starts.
absl::StatusOr<UniqueFd> TakeSignals();

// A further descriptor for the signals that are blocked already; each process needs its own after fork(2).
absl::StatusOr<UniqueFd> OpenSignals();

// The signals that have arrived, in the order the kernel hands them out.
std::vector<int> ReadSignals(int fd);

// "SIGINT"; "Interrupt".
std::string SignalName(int signal);
std::string SignalDescription(int signal);

}  // namespace gyre::launch
