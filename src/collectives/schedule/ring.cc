#include "collectives/schedule/ring.h"

#include <cstddef>

#include "collectives/schedule/steps.h"

namespace gyre::internal {

namespace {

// Block b sets out from rank b + 1, goes once around, gathers a contribution at each rank, and ends at rank b.
void AppendReduceScatter(int rank, int size, Schedule& schedule) {
  const int next = Wrapped(rank + 1, size), previous = Wrapped(rank - 1, size);
  for (int round = 0; round < size - 1; ++round) {
    schedule.steps.push_back(SendTo(next, Wrapped(rank - 1 - round, size)));
    schedule.steps.push_back(ReduceFrom(previous, Wrapped(rank - 2 - round, size)));
  }
}

// Block b sets out from rank b and is copied by each rank that it comes by.
void AppendAllGather(int rank, int size, Schedule& schedule) {
  const int next = Wrapped(rank + 1, size), previous = Wrapped(rank - 1, size);
  for (int round = 0; round < size - 1; ++round) {
    schedule.steps.push_back(SendTo(next, Wrapped(rank - round, size)));
    schedule.steps.push_back(ReceiveFrom(previous, Wrapped(rank - 1 - round, size)));
  }
}

}  // namespace

Schedule RingReduceScatter(int rank, int size) {
  Schedule schedule{.blocks = size, .steps = {}};
  AppendReduceScatter(rank, size, schedule);
  return schedule;
}

Schedule RingAllGather(int rank, int size) {
  Schedule schedule{.blocks = size, .steps = {}};
  AppendAllGather(rank, size, schedule);
  return schedule;
}

Schedule RingAllReduce(int rank, int size) {
  Schedule schedule{.blocks = size, .steps = {}};
  schedule.steps.reserve(4 * static_cast<size_t>(size - 1));
  AppendReduceScatter(rank, size, schedule);
  AppendAllGather(rank, size, schedule);
  return schedule;
}

}  // namespace gyre::internal
