// Operations over hosts between pairs of ranks: alltoall, messages, and the barrier.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/hierarchical/operation.h"

namespace gyre::internal {

// One stage: alltoall in the host's memory, and at the same time each rank exchanges with every rank of other hosts.
class HierarchicalAllToAll final : public HierarchicalOperation {
 public:
  HierarchicalAllToAll(std::shared_ptr<Team> team, const Call& call);

 private:
  Stage MakeStage(int index) override;
  absl::Status Finish() override;
  std::unique_ptr<Operation> WithinHost();
  std::unique_ptr<Executor> BetweenHosts();

  const std::vector<int64_t> sends_, receives_;    // elements by rank
  const RankCounts send_begins_, receive_begins_;  // where their segments begin
  std::vector<std::byte> in_;                      // a copy, where output goes into the same buffer
  const std::byte* from_;
  std::vector<std::byte> host_in_, host_out_;  // the host's segments, by local rank
};

// One stage: a single step between two hosts, in a lane of its own.
class HierarchicalMessage final : public HierarchicalOperation {
 public:
  HierarchicalMessage(std::shared_ptr<Team> team, const Call& call);

 private:
  Stage MakeStage(int index) override;
};

// Stages: the host's ranks meet; the first of every host meet (dissemination); the host's ranks meet again.
class HierarchicalBarrier final : public HierarchicalOperation {
 public:
  HierarchicalBarrier(std::shared_ptr<Team> team, const Call& call) : HierarchicalOperation(std::move(team), call, 3) {}

 private:
  Stage MakeStage(int index) override;
};

// One stage: this rank says in its host's memory why it refused its call. Then it gives the communicator up.
class HierarchicalRefusal final : public HierarchicalOperation {
 public:
  HierarchicalRefusal(std::shared_ptr<Team> team, const Call& call, absl::Status why)
      : HierarchicalOperation(std::move(team), call, 1), why_(std::move(why)) {}

 private:
  Stage MakeStage(int index) override;
  absl::Status Finish() override { return why_; }
  void OnEnd() override { status_ = why_; }  // whatever the others make of it, and whoever of them comes first

  const absl::Status why_;
};

}  // namespace gyre::internal
