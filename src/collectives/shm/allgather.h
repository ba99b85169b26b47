// Allgather in shared memory. Staged: every rank publishes its segment chunk by chunk, all copy all of them out.
// Direct: all copy from the others' inputs, (p - 1)/p of the bytes each.
#pragma once

#include "collectives/shm/arena_operation.h"

namespace gyre::internal {

class AllGather final : public ArenaOperation {
 public:
  AllGather(Group& group, const Call& call, const Signature& signature);

 private:
  shm::Slot::Offsets Share() override;
  void PublishChunk(int64_t chunk) override;
  Next ConsumeChunk(int64_t chunk) override;
  bool BeginDirect() override;
  bool WorkDirectly() override { return copies_.Advance(kPieceBytes); }

  std::byte* Segment(int member) const;  // of the output
  int64_t SegmentBytes(int member) const { return counts_[static_cast<size_t>(member)] * element_; }

  // Of the longest segment's chunk, by which all ranks know where in the slots the chunks are.
  int64_t ChunkBytes() const { return chunk_bytes_; }

  const ConstTensorView in_;
  const TensorView out_;
  const int64_t element_;
  const RankCounts counts_;
  const RankCounts begins_;
  const int64_t chunk_elements_;
  const int64_t chunks_;
  const int64_t chunk_bytes_;
  Copies copies_;
};

}  // namespace gyre::internal
