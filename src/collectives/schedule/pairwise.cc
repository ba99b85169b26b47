#include "collectives/schedule/pairwise.h"

#include "collectives/schedule/steps.h"

namespace gyre::internal {

Schedule PairwiseAllToAll(int rank, int size) {
  Schedule schedule{.blocks = 2 * size, .steps = {}};
  for (int distance = 1; distance < size; ++distance) {
    const int to = Wrapped(rank + distance, size), from = Wrapped(rank - distance, size);
    schedule.steps.push_back(SendTo(to, to));
    schedule.steps.push_back(ReceiveFrom(from, size + from));
  }
  return schedule;
}

}  // namespace gyre::internal
