// Reduce in shared memory: every rank but the root publishes its input chunk by chunk, the root reduces all
// of them and its own.
#pragma once

#include "collectives/shm/operation.h"

namespace gyre::internal {

class ReduceToRoot final : public Operation {
 public:
  ReduceToRoot(Group& group, const Call& call, const Signature& signature);

 private:
  void Publish(int64_t round) override;
  Next Consume(int64_t round) override;

  const ConstTensorView in_;
  const TensorView out_;
  const int root_;
  const device::Reduction reduction_;
  const int64_t element_;
  const int64_t chunk_elements_;
  const int64_t rounds_;
};

}  // namespace gyre::internal
