#include "collectives/schedule/bruck.h"

#include "collectives/schedule/steps.h"

namespace gyre::internal {

namespace {

// The pieces whose way has this bit jump by it. Each leaves a relay just before the next one that is as far on its way
// comes in there.
void AppendJump(int rank, int size, int distance, Schedule& schedule) {
  const int to = Wrapped(rank + distance, size), from = Wrapped(rank - distance, size);
  for (int way = distance; way < size; ++way) {
    if ((way & distance) == 0) continue;
    const int relay = size + Wrapped(rank - way, size);
    const bool sets_out = (way & (distance - 1)) == 0;
    schedule.steps.push_back(SendTo(to, sets_out ? Wrapped(rank + way, size) : relay));
    schedule.steps.push_back(ReceiveFrom(from, relay));
  }
}

}  // namespace

Schedule BruckAllToAll(int rank, int size) {
  Schedule schedule{.blocks = 2 * size, .steps = {}};
  for (int distance = 1; distance < size; distance *= 2) AppendJump(rank, size, distance, schedule);
  return schedule;
}

}  // namespace gyre::internal
