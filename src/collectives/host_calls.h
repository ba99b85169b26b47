// HostCalls: a communicator as those see it who make calls of their own on it, one after the other, in the course of
// one: the operations on host memory, and how to end early.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "collectives/call.h"
#include "collectives/hierarchical/team.h"
#include "collectives/lane.h"
#include "collectives/shm/group.h"

namespace gyre::internal {

// Thread-safe. Holds the communicator.
class HostCalls {
 public:
  // `team`: null where all ranks are on this host.
  HostCalls(std::shared_ptr<Group> group, std::shared_ptr<Team> team)
      : group_(std::move(group)), team_(std::move(team)) {}

  int rank() const { return team_ != nullptr ? team_->rank() : group_->rank(); }
  int size() const { return team_ != nullptr ? team_->size() : group_->size(); }
  Group& group() const { return *group_; }
  const std::shared_ptr<Group>& shared_group() const { return group_; }
  const std::shared_ptr<Team>& team() const { return team_; }
  std::shared_ptr<void> owner() const;  // of the lanes

  // Whose turn the call has to wait for. REQUIRES: a message's peer is another rank of the communicator.
  Lane& LaneOf(const Call& call) const;

  // The operation of a call on host memory. REQUIRES: Validate has found nothing wrong, the timeout is set.
  std::shared_ptr<Pollable> Make(const Call& call) const;

  // Of a call that this rank may not make, for `why`: all ranks learn so.
  std::shared_ptr<Pollable> MakeRefusal(const Call& call, const absl::Status& why) const;

  // Whether there is cause to end what is between such operations: the runtime was shut down, or the communicator is
  // broken. What then is to be its status; `context` says what is ended.
  std::optional<absl::Status> FindCause(const std::string& context) const;

  // Breaks the communicator, for what only this rank knows. Returns `why`.
  absl::Status GiveUp(const absl::Status& why) const;

 private:
  bool IsWithinHost(const Call& call) const;
  absl::Status EndBy(const std::string& context, const shm::LastWords::Content& words) const;
  void Break(const absl::Status& status, const shm::LastWords::Content& words) const;

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<Team> team_;
};

}  // namespace gyre::internal
