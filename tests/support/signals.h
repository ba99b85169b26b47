// Signals to processes that a test has found by their output, or not.
#pragma once

#include <signal.h>
#include <sys/types.h>

namespace gyre::support {

// kill(2), of one process: not of all of them (-1), nor of a group (0 is this process's own), which is what numbers
// stand for that are no process's. Whether it was sent.
[[nodiscard]] inline bool SendSignal(pid_t pid, int signal_number) {
  return pid > 0 && kill(pid, signal_number) == 0;
}

}  // namespace gyre::support
