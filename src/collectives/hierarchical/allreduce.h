// Allreduce over hosts: reduce-scatter in the host's memory, an allreduce of each rail's slice between hosts, allgather
// in the host's memory; large ones in chunks, so that the three overlap. Bytes on a host's wire: 2 (h-1)/h S, which is
// the least there can be (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/hierarchical/layout.h"
#include "collectives/hierarchical/operation.h"
#include "collectives/shm/allgather.h"
#include "collectives/shm/reduce_scatter.h"

namespace gyre::internal {

class HierarchicalAllReduce final : public HierarchicalOperation {
 public:
  HierarchicalAllReduce(const std::shared_ptr<Team>& team, const Call& call);

 private:
  Stage MakeStage(int index) override;
  void Scatter(int64_t chunk, Stage& stage);
  void Gather(int64_t chunk, Stage& stage);
  void Between(int64_t chunk, Stage& stage);
  int chunks() const;
  Range ChunkOf(int64_t chunk) const;
  int RailsFor(int64_t count) const;
  RailSlices SlicesOf(int64_t count) const;
  char* Out(int64_t element_index) const;

  Selection selection_;  // both: from the first stage on
  int64_t chunk_elements_ = 0;
  std::optional<ReduceScatter> scatter_;  // these two: the stage's
  std::optional<AllGather> gather_;       //
};

}  // namespace gyre::internal
