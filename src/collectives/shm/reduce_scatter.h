// Reduce-scatter in shared memory: chunks hold a piece of every other rank's segment; each rank reduces its own.
#pragma once

#include <vector>

#include "collectives/shm/operation.h"

namespace gyre::internal {

class ReduceScatter final : public Operation {
 public:
  ReduceScatter(Group& group, const Call& call, const Signature& signature);

 private:
  void Publish(int64_t round) override;
  Next Consume(int64_t round) override;

  const ConstTensorView in_;
  const TensorView out_;
  const device::Reduction reduction_;
  const int64_t element_;
  const std::vector<int64_t> counts_;
  const std::vector<int64_t> begins_;
  const int64_t piece_;  // elements of a segment in a chunk
  const int64_t rounds_;
};

}  // namespace gyre::internal
