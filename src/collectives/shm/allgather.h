// Allgather in shared memory: every rank publishes its segment chunk by chunk, all copy all of them out.
#pragma once

#include <vector>

#include "collectives/shm/operation.h"

namespace gyre::internal {

class AllGather final : public Operation {
 public:
  AllGather(Group& group, const Call& call, const Signature& signature);

 private:
  void Publish(int64_t round) override;
  Next Consume(int64_t round) override;

  const ConstTensorView in_;
  const TensorView out_;
  const int64_t element_;
  const std::vector<int64_t> counts_;
  const std::vector<int64_t> begins_;
  const int64_t chunk_elements_;
  const int64_t rounds_;
};

}  // namespace gyre::internal
