// Alltoall in shared memory. Round 0 exchanges what every rank means to send and to receive, and all check it; from
// then on a chunk holds a piece for every other rank, each of which copies its own out.
#pragma once

#include <vector>

#include "collectives/shm/operation.h"

namespace gyre::internal {

class AllToAll final : public Operation {
 public:
  AllToAll(Group& group, const Call& call, const Signature& signature);

 private:
  void Publish(int64_t round) override;
  Next Consume(int64_t round) override;
  Next ConsumeCounts();

  // This rank's and others' plans in the slots of round 0: what they send to each rank, then what they expect.
  int64_t PlanBytes() const { return 2 * size() * static_cast<int64_t>(sizeof(int64_t)); }

  const ConstTensorView in_;
  const TensorView out_;
  const int64_t element_;
  const std::vector<int64_t> send_counts_;
  const std::vector<int64_t> receive_counts_;
  const std::vector<int64_t> send_begins_;
  const std::vector<int64_t> receive_begins_;
  const int64_t piece_;  // elements for one rank in a chunk
  int64_t rounds_ = 0;   // after round 0
};

}  // namespace gyre::internal
