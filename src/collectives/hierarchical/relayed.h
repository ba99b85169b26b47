// Alltoall over hosts whose pieces are relayed by other hosts (schedule/bruck.h): for pieces of one size, on hosts of
// as many ranks each.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/hierarchical/operation.h"

namespace gyre::internal {

// Stages: Bruck's schedule on each rail, with what a rank has for all ranks of a host as one block; alltoall in the
// host's memory, where each rank's rail has brought pieces for all ranks of the host.
class HierarchicalRelayedAllToAll final : public HierarchicalOperation {
 public:
  // Whether ranks that all make such a call can carry it out so. The answer is the same on all of them.
  static bool Suits(const Team& team, const Call& call);

  // REQUIRES: Suits, and call.relayed.
  HierarchicalRelayedAllToAll(std::shared_ptr<Team> team, const Call& call);

 private:
  Stage MakeStage(int index) override;
  absl::Status Finish() override;
  void TakePieces();
  std::unique_ptr<Executor> BetweenHosts();
  std::unique_ptr<Operation> WithinHost();
  size_t PieceAt(int host, int local) const {
    return (static_cast<size_t>(host) * static_cast<size_t>(team().local_size()) + static_cast<size_t>(local)) * piece_;
  }

  const size_t piece_;                         // bytes
  std::vector<std::byte> sent_, brought_;      // by host, then by local rank: its piece; the piece for it
  std::vector<std::byte> host_in_, host_out_;  // by local rank, then by host
};

}  // namespace gyre::internal
