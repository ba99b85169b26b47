// Operations over hosts in which every rank has a segment of its own: reduce-scatter and allgather. Each rail carries
// its local ranks' segments in one ring between hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/hierarchical/layout.h"
#include "collectives/hierarchical/operation.h"

namespace gyre::internal {

// Stages: reduce-scatter in the host's memory, so that each rail has the host's sum of all its segments; ring
// reduce-scatter between hosts; and where a host has more ranks than there are rails, these get theirs.
class HierarchicalReduceScatter final : public HierarchicalOperation {
 public:
  HierarchicalReduceScatter(std::shared_ptr<Team> team, const Call& call);

 private:
  Stage MakeStage(int index) override;
  absl::Status Finish() override;
  bool on_rail() const { return team().local_rank() < team().rails(); }
  std::byte* At(int64_t begin) { return buffer_.data() + begin * element(); }

  const RailOrder order_;
  std::vector<std::byte> buffer_;  // in rail order
};

// Stages: where a host has more ranks than there are rails, these give theirs; ring allgather between hosts; allgather
// in the host's memory.
class HierarchicalAllGather : public HierarchicalOperation {
 public:
  HierarchicalAllGather(std::shared_ptr<Team> team, const Call& call);

 protected:
  absl::Status Finish() override;

 private:
  Stage MakeStage(int index) override;
  void TakeHostSegments();
  std::byte* At(int64_t begin) { return buffer_.data() + begin * element(); }

  const RailOrder order_;
  std::vector<std::byte> buffer_;  // in rail order
  std::vector<std::byte> host_;    // the host's segments, by local rank
};

}  // namespace gyre::internal
