// Stack traces of running processes: gyrerun stacks, and what --stack-on-hang has done on each host.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::launch {

// What to take the stacks of: "PID", or "LABEL=PID".
struct StackTarget {
  std::string label;
  pid_t pid = 0;
};
absl::StatusOr<StackTarget> ParseStackTarget(const std::string& text);

// The stacks of all threads of the process and of what descends from it (16 processes at most), by eu-stack or else
// gdb, whichever is there and may; else what the kernel says each thread waits in. Blocks for some seconds, at most 20.
// kNotFound: there is no such process, or it has ended.
absl::StatusOr<std::string> StacksOf(const StackTarget& target);

}  // namespace gyre::launch
