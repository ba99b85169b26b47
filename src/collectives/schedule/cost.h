// What a collective costs: messages, bytes and rounds, counted over the schedules of all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/schedule/schedule.h"

namespace gyre::internal {

struct Cost {
  // Messages on the longest chain in which each can only be sent, or taken, after the one before it has arrived: how
  // many times the latency of a link is paid at least.
  int rounds = 0;
  int64_t messages = 0;           // of all ranks
  std::vector<int64_t> sent;      // bytes, by rank
  std::vector<int64_t> received;  // bytes, by rank
};

// `programs`: every rank's schedule. `block_bytes`: the sizes of their blocks, the same for all ranks; the sender's
// block says how long a message is. Pure; time and memory grow with the number of all steps.
// kInvalidArgument: they fit neither each other nor the sizes (a send without its receive, a rank or block that does
// not exist), or wait for each other in a circle, whatever the transport holds.
absl::StatusOr<Cost> CountCost(std::span<const Schedule> programs, std::span<const int64_t> block_bytes);

}  // namespace gyre::internal
