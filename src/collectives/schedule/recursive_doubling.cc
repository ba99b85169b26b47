#include "collectives/schedule/recursive_doubling.h"

#include <bit>

#include "collectives/schedule/steps.h"

namespace gyre::internal {

Schedule RecursiveDoublingAllReduce(int rank, int size) {
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= core) return {.blocks = 1, .steps = {SendTo(rank - core, 0), ReceiveFrom(rank - core, 0)}};

  Schedule schedule{.blocks = 1, .steps = {}};
  const bool stands_for_another = rank + core < size;
  if (stands_for_another) schedule.steps.push_back(ReduceFrom(rank + core, 0));
  for (int distance = 1; distance < core; distance *= 2) {
    schedule.steps.push_back(SendTo(rank ^ distance, 0));
    schedule.steps.push_back(ReduceFrom(rank ^ distance, 0));
  }
  if (stands_for_another) schedule.steps.push_back(SendTo(rank + core, 0));
  return schedule;
}

}  // namespace gyre::internal
