// A job of many hosts with one rank each, on a simulated network, all on one thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/hierarchical/operation.h"
#include "collectives/hierarchical/team.h"
#include "transport/sim/network.h"

namespace gyre {

class SimWorld {
 public:
  // `believed`: what the ranks take the network for at the start; empty: for what it is.
  explicit SimWorld(const sim::NetworkOptions& options, bool checksum = false, internal::ForcedAlgorithms forced = {},
                    std::optional<internal::PathModel> believed = {});

  int size() const { return static_cast<int>(teams_.size()); }
  sim::SimNetwork& network() { return *network_; }
  const std::shared_ptr<internal::Team>& team(int rank) const { return teams_[static_cast<size_t>(rank)]; }

  // Makes the call's operation, after validation.
  std::shared_ptr<internal::HierarchicalOperation> Make(int rank, internal::Call call) const;

  // Drives one operation a rank (null: that rank does nothing) until all have ended. `limit`: most virtual time; false
  // if one has not ended by then.
  bool Run(const std::vector<std::shared_ptr<internal::HierarchicalOperation>>& operations, Duration limit);

 private:
  std::unique_ptr<sim::SimNetwork> network_;
  std::shared_ptr<internal::Selector> selector_;
  std::vector<std::shared_ptr<internal::Team>> teams_;
};

// Runs one random collective (every kind, dtype, reduction, size) over a world drawn from `seed`, with faults if so
// asked, and returns what is wrong with the outcome: a result that is not the definition's, a rank that ended in
// neither success nor a status in time, a status that says nothing, a wrong call that was not refused everywhere.
// Empty: all is well. `trace`, if not null, becomes all bytes that arrived, when and where, and all ranks' statuses.
std::string RunRandomCall(uint64_t seed, bool faults, int max_ranks, std::string* trace);

// Twice, and the traces must be the same.
std::string RunTwice(uint64_t seed, bool faults, int max_ranks);

}  // namespace gyre
