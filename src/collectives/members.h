// Members: who takes part in a communicator, as Gyre sees it: where it is found broken, and breaks.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "collectives/hierarchical/team.h"
#include "collectives/shm/group.h"

namespace gyre::internal {

struct Members {
  std::shared_ptr<Group> group;  // of this host
  std::shared_ptr<Team> team;    // null: all are on this host

  int rank() const { return team != nullptr ? team->rank() : group->rank(); }
  int size() const { return team != nullptr ? team->size() : group->size(); }
  int job_rank(int rank) const;  // of a rank of the communicator

  // Why the communicator cannot go on, if it cannot, with what the others are to find: another rank has broken it, one
  // of its ranks is lost. `context`: which call ends for it.
  struct Cause {
    absl::Status status;
    shm::LastWords::Content words;
  };
  std::optional<Cause> FindCause(const std::string& context) const;

  // OK, or why the communicator, or the runtime, is not usable any more: for calls that begin.
  absl::Status Usable() const;

  // Makes the communicator unusable everywhere. Only the first cause counts.
  void Break(const Cause& cause) const;

  // Likewise, for a reason of this rank's own.
  void GiveUp(const absl::Status& why) const;
};

}  // namespace gyre::internal
