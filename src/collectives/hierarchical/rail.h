// What of a call goes between hosts where all else of it is done on GPUs: one schedule on this rank's rail, on memory
// of the host.
#pragma once

#include <memory>
#include <vector>

#include "collectives/hierarchical/operation.h"

namespace gyre::internal {

// One stage. Ranks on no rail make it too and end at once, so that calls are counted alike. It does nothing in the
// host's memory, where other operations of the call may be under way, and teaches nothing of the network.
class HierarchicalRail final : public HierarchicalOperation {
 public:
  // In place: call.in is call.out, this rail's part of the whole. Allreduce; broadcast from the host of call.root, a
  // rank of the communicator; reduce-scatter and allgather of a segment for each host, in which call.counts are the
  // elements by host. An allreduce or reduce-scatter without scales, which are not applied.
  HierarchicalRail(std::shared_ptr<Team> team, const Call& call);

 private:
  Stage MakeStage(int index) override;
  std::vector<MutableBytes> Blocks(const Schedule& schedule) const;
};

}  // namespace gyre::internal
