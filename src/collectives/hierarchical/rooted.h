// Operations over hosts with a root: broadcast and reduce. Each rail carries a slice of the buffer from or to the
// root's host; small buffers go over one rail.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/hierarchical/layout.h"
#include "collectives/hierarchical/operation.h"

namespace gyre::internal {

// Stages: broadcast in the memory of the root's host; broadcast of each rail's slice between hosts; allgather in the
// memory of the other hosts.
class HierarchicalBroadcast final : public HierarchicalOperation {
 public:
  HierarchicalBroadcast(std::shared_ptr<Team> team, const Call& call);

 private:
  Stage MakeStage(int index) override;

  const Place root_;
  const int rails_;
  const RailSlices slices_;
};

// Stages: reduce-scatter in the host's memory; reduction of each rail's slice between hosts; on the root's host, the
// slices are gathered.
class HierarchicalReduce final : public HierarchicalOperation {
 public:
  HierarchicalReduce(std::shared_ptr<Team> team, const Call& call);

 private:
  Stage MakeStage(int index) override;
  absl::Status Finish() override;
  bool is_root() const { return team().rank() == call().root; }
  std::byte* OwnSlice() {
    return buffer_.data() + slices_.begins[static_cast<size_t>(team().local_rank())] * element();
  }

  const Place root_;
  const int rails_;
  const RailSlices slices_;
  std::vector<std::byte> buffer_;
};

}  // namespace gyre::internal
