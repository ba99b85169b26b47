// Broadcast in shared memory. Staged: the root publishes its buffer chunk by chunk, the others copy it out. Direct: the
// others copy from the root's buffer; where theirs lie in arenas as well, the root writes its share, one part in p,
// into all of them meanwhile. A message is the broadcast of two, a barrier the broadcast of nothing.
#pragma once

#include "collectives/shm/arena_operation.h"

namespace gyre::internal {

class Broadcast final : public ArenaOperation {
 public:
  // `root`: of the channel's meeting. `from` is read on the root, `to` written elsewhere; they are of one size, or one
  // of them is empty.
  Broadcast(Group& group, Channel& channel, const Signature& signature, std::chrono::milliseconds timeout, int root,
            ConstTensorView from, TensorView to);

 private:
  shm::Slot::Offsets Share() override;
  void PublishChunk(int64_t chunk) override;
  Next ConsumeChunk(int64_t chunk) override;
  Sharing LookAround() override;
  bool BeginDirect() override;
  bool WorkDirectly() override { return copies_.Advance(kPieceBytes); }
  void OnGivenUp() override;

  bool RootHelps();
  bool AddRootsShare();

  const int root_;
  const std::byte* const from_;
  std::byte* const to_;
  const int64_t bytes_;
  const int64_t chunks_;
  Copies copies_;
};

}  // namespace gyre::internal
