// Reduce-scatter in shared memory; every rank reduces its own segment. Staged: chunks hold a piece of every other
// rank's segment. Direct: each reads the others' inputs.
#pragma once

#include "collectives/shm/arena_operation.h"

namespace gyre::internal {

class ReduceScatter final : public ArenaOperation {
 public:
  ReduceScatter(Group& group, const Call& call, const Signature& signature);

 private:
  shm::Slot::Offsets Share() override;
  void PublishChunk(int64_t chunk) override;
  Next ConsumeChunk(int64_t chunk) override;
  bool BeginDirect() override;
  bool WorkDirectly() override;

  const char* Own() const;  // this rank's segment of its input
  int64_t ChunkBytes() const { return size() * piece_ * element_; }

  const ConstTensorView in_;
  const TensorView out_;
  const device::Reduction reduction_;
  const int64_t element_;
  const RankCounts counts_;
  const RankCounts begins_;
  const int64_t longest_;
  const int64_t piece_;  // elements of a segment in a chunk
  const int64_t chunks_;
  int64_t done_ = 0;  // directly: elements
};

}  // namespace gyre::internal
