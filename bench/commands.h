// The subcommands of gyre-bench.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sweep.h"

namespace gyre::bench {

struct CollectiveOptions {
  SweepOptions sweep;
  std::vector<std::string> against;  // "mpi", "gloo"
};

// Latency and bandwidth by size, alone or interleaved with peers in the same processes. `command`: as it was typed.
absl::Status RunCollective(Operation operation, const CollectiveOptions& options, const std::string& command);

}  // namespace gyre::bench
