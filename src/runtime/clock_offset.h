// How this host's clock is set against rank 0's.
#pragma once

#include <chrono>

#include "absl/status/statusor.h"
#include "gyre/communicator.h"

namespace gyre::internal {

struct ClockOffset {
  std::chrono::nanoseconds offset{0};       // rank 0's steady clock minus this host's
  std::chrono::nanoseconds uncertainty{0};  // half the shortest round trip
};

// Collective: all ranks of the communicator call it. The first rank of each other host exchanges a few messages with
// rank 0 and takes the one that was answered soonest, as in Cristian, "Probabilistic clock synchronization",
// Distributed Computing 3, 1989. Ranks of one host have one clock.
absl::StatusOr<ClockOffset> MeasureClockOffset(Communicator& world);

}  // namespace gyre::internal
