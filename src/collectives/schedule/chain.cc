#include "collectives/schedule/chain.h"

#include "collectives/schedule/steps.h"

namespace gyre::internal {

namespace {

// The links of a chain that begins at the root.
struct ChainLinks {
  ChainLinks(int rank, int size, int root)
      : is_root(rank == root),
        is_last(Wrapped(rank + 1, size) == root),
        towards_root(Wrapped(rank - 1, size)),
        from_root(Wrapped(rank + 1, size)) {}

  bool is_root;
  bool is_last;
  int towards_root;
  int from_root;
};

}  // namespace

Schedule ChainBroadcast(int rank, int size, int root) {
  const ChainLinks links(rank, size, root);
  Schedule schedule{.blocks = 1, .steps = {}};
  if (!links.is_root) schedule.steps.push_back(ReceiveFrom(links.towards_root, 0));
  if (!links.is_last) schedule.steps.push_back(SendTo(links.from_root, 0));
  return schedule;
}

Schedule ChainReduce(int rank, int size, int root) {
  const ChainLinks links(rank, size, root);
  Schedule schedule{.blocks = 1, .steps = {}};
  if (!links.is_last) schedule.steps.push_back(ReduceFrom(links.from_root, 0));
  if (!links.is_root) schedule.steps.push_back(SendTo(links.towards_root, 0));
  return schedule;
}

}  // namespace gyre::internal
