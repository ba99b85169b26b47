// Adasum in shared memory: every rank publishes its vector chunk by chunk, all take all of them and combine them alike.
// Simple rather than fast: p vectors of work on every rank.
#pragma once

#include "collectives/adasum.h"
#include "collectives/shm/operation.h"

namespace gyre::internal {

class AdasumAllReduce final : public Operation {
 public:
  AdasumAllReduce(Group& group, const Call& call, const Signature& signature);

 private:
  void Publish(int64_t round) override;
  Next Consume(int64_t round) override;

  const ConstTensorView in_;
  const TensorView out_;
  const double prescale_, postscale_;
  const int64_t element_;
  const int64_t chunk_elements_;
  const int64_t rounds_;
  int64_t taken_ = 0;  // rounds whose chunks are in the work
  AdasumWork work_;
};

}  // namespace gyre::internal
