// Broadcast in shared memory: the root publishes its buffer chunk by chunk, the others copy it out. A message is the
// broadcast of two, a barrier the broadcast of nothing.
#pragma once

#include "collectives/shm/operation.h"

namespace gyre::internal {

class Broadcast final : public Operation {
 public:
  // `root`: of the channel's meeting. `from` is read on the root, `to` written elsewhere; they are of one size, or one
  // of them is empty.
  Broadcast(Group& group, Channel& channel, const Signature& signature, std::chrono::milliseconds timeout, int root,
            ConstTensorView from, TensorView to);

 private:
  void Publish(int64_t round) override;
  Next Consume(int64_t round) override;

  const int root_;
  const char* const from_;
  char* const to_;
  const int64_t bytes_;
  const int64_t rounds_;
};

}  // namespace gyre::internal
