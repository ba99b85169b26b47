// What processes use, from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace gyre::launch {

struct ProcessUsage {
  double cpu_seconds = 0;          // of the living, and of the dead that their parents have reaped
  uint64_t memory = 0;             // bytes, resident; of what is shared its share (PSS), where the system tells
  std::vector<pid_t> processes{};  // the living
};

// For each of `roots`: it and all that descends from it. One look at all of /proc. Zeros for what is not there.
std::vector<ProcessUsage> UsageOfTrees(const std::vector<pid_t>& roots);

}  // namespace gyre::launch
