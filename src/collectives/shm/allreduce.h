// Allreduce in shared memory. Three ways, chosen by size and by where the buffers lie; p ranks, S bytes:
//
//   direct     every rank copies its input into its slot and reduces all slots into its own output. One meeting a
//              chunk; touches (p + 3) S bytes a rank. For small inputs, and for plain buffers of up to three ranks.
//   pipelined  as direct, but each rank reduces only its slice of the chunk, and all copy the slices out one meeting
//              later, while the next chunk is being reduced. about 5 S bytes. For plain buffers of more ranks.
//   push       buffers in the arenas: every rank reduces its slice of all buffers and stores the result to all of
//              them, in one pass over 2 S bytes, the lower bound; two meetings in all.
//   grid       the same for many ranks, in rows and columns of about sqrt(p): a rank reduces its chunk within its row,
//              its slice of that chunk within its column, and stores the chunk to its row. 2 S + 4 S / sqrt(p) bytes,
//              but a rank works on the memory of 2 sqrt(p) others instead of all; four meetings, three of them with as
//              few. The two levels are those of hierarchical reductions, Jain et al., "Framework for Scalable
//              Intra-Node Collective Operations using Shared Memory" (SC 2018).
//
// Slots and slices are reduced in the order of ranks, in a grid row by row, and by one rank or by all alike: all ranks
// get the same bits.
#pragma once

#include "collectives/shm/operation.h"

namespace gyre::internal {

class AllReduce final : public Operation {
 public:
  AllReduce(Group& group, const Call& call, const Signature& signature);

 private:
  enum class Way { kUndecided, kDirect, kPipelined, kPush, kGrid };
  enum class Stage { kRow, kColumn, kSpread };

  void Publish(int64_t round) override;
  Next Consume(int64_t round) override;
  void OnGivenUp() override;

  Next Decide(int64_t round);
  bool IsInArena(int member, const shm::Slot::Offsets& offsets);
  Next Direct(int64_t chunk);
  Next Pipelined(int64_t chunk);
  bool UsesGrid() const;
  bool Reach(int member, int64_t begin);
  Next BeginPush();
  Next BeginGrid();
  Next BeginStage(Stage stage);
  Next EndStage();
  Next PushPiece();
  device::Reduction StageReduction() const;
  int FirstPartnerGone() const;
  void CopyOutSlices(int64_t chunk);

  int64_t ChunkBegin(int64_t chunk) const { return chunk * chunk_elements_; }
  int64_t ChunkCount(int64_t chunk) const;

  const ConstTensorView in_;
  const TensorView out_;
  const device::Reduction reduction_;
  const int64_t element_;  // bytes
  const int64_t chunk_elements_;
  const int64_t chunks_;  // at least 1
  Way way_;
  bool shared_ = false;        // both buffers lie in this rank's arena
  int64_t first_round_ = 0;    // the round of chunk 0
  Stage stage_ = Stage::kRow;  // of a grid
  int64_t to_push_ = 0;        // elements of this rank's slice (of the stage) that are yet to be reduced
};

}  // namespace gyre::internal
