#include "collectives/schedule/circulant.h"

#include <cstddef>

#include "collectives/schedule/steps.h"

namespace gyre::internal {

namespace {

// This rank cares for `width` blocks from its own on. It keeps the first half (of an odd number the larger one), and
// hands the rest to the rank whose own block those begin with.
void AppendCirculantHalving(int rank, int size, int width, Schedule& schedule) {
  if (width <= 1) return;
  const int distance = (width + 1) / 2;
  const int to = Wrapped(rank + distance, size), from = Wrapped(rank - distance, size);
  for (int i = 0; i < width - distance; ++i) {
    schedule.steps.push_back(SendTo(to, Wrapped(rank + distance + i, size)));
    schedule.steps.push_back(ReduceFrom(from, Wrapped(rank + i, size)));
  }
  AppendCirculantHalving(rank, size, distance, schedule);
}

// The same backwards, with the arrows reversed: ends with `width` blocks from this rank's own on.
void AppendCirculantDoubling(int rank, int size, int width, Schedule& schedule) {
  if (width <= 1) return;
  const int distance = (width + 1) / 2;
  AppendCirculantDoubling(rank, size, distance, schedule);
  const int to = Wrapped(rank - distance, size), from = Wrapped(rank + distance, size);
  for (int i = 0; i < width - distance; ++i) {
    schedule.steps.push_back(SendTo(to, Wrapped(rank + i, size)));
    schedule.steps.push_back(ReceiveFrom(from, Wrapped(rank + distance + i, size)));
  }
}

}  // namespace

Schedule CirculantReduceScatter(int rank, int size) {
  Schedule schedule{.blocks = size, .steps = {}};
  AppendCirculantHalving(rank, size, size, schedule);
  return schedule;
}

Schedule CirculantAllGather(int rank, int size) {
  Schedule schedule{.blocks = size, .steps = {}};
  AppendCirculantDoubling(rank, size, size, schedule);
  return schedule;
}

Schedule CirculantAllReduce(int rank, int size) {
  Schedule schedule{.blocks = size, .steps = {}};
  schedule.steps.reserve(4 * static_cast<size_t>(size - 1));
  AppendCirculantHalving(rank, size, size, schedule);
  AppendCirculantDoubling(rank, size, size, schedule);
  return schedule;
}

}  // namespace gyre::internal
