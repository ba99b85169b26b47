// Advice: through parameter servers or by allreduce, and with how many servers: what exchanging a model's gradients
// costs a step each way, by formula. Bandwidth-optimal schedules, links full both ways, nothing hidden behind
// computation.
//
// The shares of servers on hosts of their own and beside workers are those of Jiang et al., "A Unified Architecture for
// Accelerating Distributed DNN Training in Heterogeneous GPU/CPU Clusters", OSDI 2020, section 4.1. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::internal {

struct AdviceQuestion {
  double model_bytes = 0;               // of all gradients; more than 0
  int hosts = 1;                        // that workers run on
  int workers_per_host = 1;             //
  double bytes_per_second = 0;          // of a host's link, each way; more than 0
  double latency = 0;                   // seconds, one way
  double reduced_bytes_per_second = 0;  // of gradients that a host adds up; more than 0
  int most_servers = 0;                 // hosts that could be servers; 0: none but the workers'
  double compression = 0.5;             // bytes sent of a byte; 0 to 1, not 0
  double coded_bytes_per_second = 4e9;  // of a codec; more than 0
};

struct Advice {
  std::string strategy;  // "allreduce, flat", "servers beside workers", ...
  int servers = 0;       // hosts of their own
  double seconds = 0;
};

// Every way, the cheapest first; of equals the one with fewer hosts. kInvalidArgument names what is out of its range.
absl::StatusOr<std::vector<Advice>> Advise(const AdviceQuestion& question);

}  // namespace gyre::internal
