// The processes below one process, found in /proc, and how to end them all.
//
// A process that leaves its group or session (setsid) and loses its parent falls to the nearest ancestor that is a
// child subreaper (prctl(2)), so below such an ancestor nothing gets out of sight.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/clock.h"

namespace gyre::launch {

struct Process {  // or a thread
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';                    // of its main thread, as in /proc/PID/stat; Z: the others may live on
  unsigned long long start_ticks = 0;  // with pid, names a process for good
};

// Everything that descends from `root`, zombies included, `root` itself not.
std::vector<Process> Descendants(pid_t root);

// The threads of `pid` that live: a process whose main thread has ended (pthread_exit) looks dead but may have some.
std::vector<Process> LivingThreads(pid_t pid);

// Whether `pid` lives and is stopped, with all its threads.
bool IsStopped(pid_t pid);

inline constexpr Duration kLeftBehind = std::chrono::seconds(5);  // for what was left behind to die of SIGKILL

// Kills what descends from the calling process, again and again until nothing is left, and reaps its own children.
// Blocks until `deadline` at most; false if something is left then (a process that hangs in the kernel).
bool KillDescendants(TimePoint deadline);

// Reaps the calling process's dead children except those in `keep`.
void ReapOrphans(const std::vector<pid_t>& keep);

}  // namespace gyre::launch
