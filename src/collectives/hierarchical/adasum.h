// Adasum over hosts: an allgather of all ranks' vectors, which every rank then combines in the order of ranks, as
// within a host. So the bits do not depend on how ranks are spread over hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/hierarchical/segments.h"

namespace gyre::internal {

// What the allgather of HierarchicalAdasum fills: made before it.
struct AdasumVectors {
  AdasumVectors(const Call& call, int ranks)
      : bytes(static_cast<size_t>(call.in.bytes() * ranks)), counts(static_cast<size_t>(ranks), call.in.count) {}

  std::vector<std::byte> bytes;  // by rank
  std::vector<int64_t> counts;
};

class HierarchicalAdasum final : private AdasumVectors, public HierarchicalAllGather {
 public:
  HierarchicalAdasum(const std::shared_ptr<Team>& team, const Call& call);

 private:
  // Blocks for the time of combining: several passes over all ranks' vectors.
  absl::Status Finish() override;

  const TensorView result_;
};

}  // namespace gyre::internal
