// Alltoall in shared memory. Every rank begins with what it means to send and to receive, and all check it. Staged: a
// chunk holds a piece for every other rank, each of which copies its own out, the first ones beside the plans. Direct:
// each copies from the others' inputs.
#pragma once

#include "collectives/shm/arena_operation.h"

namespace gyre::internal {

class AllToAll final : public ArenaOperation {
 public:
  AllToAll(Group& group, const Call& call, const Signature& signature);

 private:
  shm::Slot::Offsets Share() override;
  void PublishChunk(int64_t chunk) override;
  Next ConsumeChunk(int64_t chunk) override;
  bool Agree() override;
  bool BeginDirect() override;
  bool WorkDirectly() override { return copies_.Advance(kPieceBytes); }

  // A rank's slot begins with its plan: what it sends to each rank, then what it expects.
  int64_t PlanBytes() const { return 2 * size() * static_cast<int64_t>(sizeof(int64_t)); }
  int64_t Planned(int member, int64_t entry);
  int64_t PieceLength(int64_t longest) const;
  int64_t PieceAt(int64_t piece, int receiver) const;  // in a slot
  std::byte* Payload(int member) { return meeting().slot(member).payload(channel().capacity); }

  const ConstTensorView in_;
  const TensorView out_;
  const int64_t element_;
  const RankCounts send_counts_;
  const RankCounts receive_counts_;
  const RankCounts send_begins_;
  const RankCounts receive_begins_;
  RankCounts pieces_;   // by sender: elements for one rank in a chunk. Others' are known once all agree, as is
  int64_t chunks_ = 1;  // how many chunks there are
  Copies copies_;
};

}  // namespace gyre::internal
