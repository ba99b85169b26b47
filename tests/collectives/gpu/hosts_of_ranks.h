// The ranks of several hosts in one thread, on a simulated network, with one fake GPU a host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/gpu/ranks_on_gpus.h"
#include "collectives/hierarchical/team.h"
#include "collectives/host_calls.h"
#include "transport/sim/network.h"

namespace gyre {

class HostsOfRanks final : public RanksOnGpus {
 public:
  // `sizes`: ranks by host.
  HostsOfRanks(const std::vector<int>& sizes, uint64_t seed);
  ~HostsOfRanks() override;

  const std::shared_ptr<internal::Group>& group(int rank) const { return groups_[static_cast<size_t>(rank)]; }
  const std::shared_ptr<internal::Team>& team(int rank) const { return teams_[static_cast<size_t>(rank)]; }
  internal::HostCalls calls(int rank) const { return {group(rank), team(rank)}; }
  int host(int rank) const { return hosts_[static_cast<size_t>(rank)]; }
  sim::SimNetwork& network() { return network_; }

  // The rank is lost, as far as all others can tell.
  void Lose(int rank);

 private:
  void LetTimePass() override;

  const std::vector<int> hosts_;  // by rank
  sim::SimNetwork network_;
  std::vector<std::shared_ptr<internal::Group>> groups_;
  std::vector<std::shared_ptr<internal::Team>> teams_;
};

}  // namespace gyre
