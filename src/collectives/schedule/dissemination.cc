#include "collectives/schedule/dissemination.h"

#include "collectives/schedule/steps.h"

namespace gyre::internal {

Schedule DisseminationBarrier(int rank, int size) {
  Schedule schedule{.blocks = 1, .steps = {}};
  for (int distance = 1; distance < size; distance *= 2) {
    schedule.steps.push_back(SendTo(Wrapped(rank + distance, size), 0));
    schedule.steps.push_back(ReceiveFrom(Wrapped(rank - distance, size), 0));
  }
  return schedule;
}

}  // namespace gyre::internal
