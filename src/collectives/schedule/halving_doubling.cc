#include "collectives/schedule/halving_doubling.h"

#include <bit>
#include <cstddef>

#include "collectives/schedule/steps.h"

namespace gyre::internal {

namespace {

using MakeStep = Step (*)(int peer, int block);

void AppendAll(MakeStep make, int peer, Schedule& schedule) {
  for (int block = 0; block < schedule.blocks; ++block) schedule.steps.push_back(make(peer, block));
}

// Blocks are taken by how their numbers differ from the rank's own: so all ranks do the same, seen from where they
// stand.

// Before the exchange at `distance`, this rank and its partner both care for the blocks whose bits above `distance` are
// their own. Each hands over those whose bit `distance` is the partner's; first those that are handed on next.
void AppendHalving(int rank, int distance, Schedule& schedule) {
  const int partner = rank ^ distance;
  for (int away = distance - 1; away >= 0; --away) {
    schedule.steps.push_back(SendTo(partner, partner ^ away));
    schedule.steps.push_back(ReduceFrom(partner, rank ^ away));
  }
}

// The same with the arrows reversed: each gets what it handed over back, reduced.
void AppendDoubling(int rank, int distance, Schedule& schedule) {
  const int partner = rank ^ distance;
  for (int away = 0; away < distance; ++away) {
    schedule.steps.push_back(SendTo(partner, rank ^ away));
    schedule.steps.push_back(ReceiveFrom(partner, partner ^ away));
  }
}

}  // namespace

int HalvingDoublingBlocks(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
}

Schedule HalvingDoublingAllReduce(int rank, int size) {
  const int core = HalvingDoublingBlocks(size);
  Schedule schedule{.blocks = core, .steps = {}};
  if (rank >= core) {
    AppendAll(SendTo, rank - core, schedule);
    AppendAll(ReceiveFrom, rank - core, schedule);
    return schedule;
  }
  const bool stands_for_another = rank + core < size;
  schedule.steps.reserve(6 * static_cast<size_t>(core));
  if (stands_for_another) AppendAll(ReduceFrom, rank + core, schedule);
  for (int distance = core / 2; distance > 0; distance /= 2) AppendHalving(rank, distance, schedule);
  for (int distance = 1; distance < core; distance *= 2) AppendDoubling(rank, distance, schedule);
  if (stands_for_another) AppendAll(SendTo, rank + core, schedule);
  return schedule;
}

}  // namespace gyre::internal
