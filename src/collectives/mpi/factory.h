// The MPI backend's face: carries a world's collectives out by MPI instead of Gyre's own algorithms, for sites whose
// MPI knows their network best. Messages between two ranks and communicators made by Split stay Gyre's own.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "collectives/call.h"
#include "collectives/hierarchical/team.h"
#include "collectives/lane.h"
#include "collectives/shm/group.h"

namespace gyre::internal::mpi {

class Transport;

// Who takes part, as Gyre sees it: where the communicator is found broken, and breaks.
struct Members {
  std::shared_ptr<Group> group;  // of this host
  std::shared_ptr<Team> team;    // null: all are on this host

  int rank() const { return team != nullptr ? team->rank() : group->rank(); }
  int size() const { return team != nullptr ? team->size() : group->size(); }
};

// Thread-safe.
class Backend {
 public:
  // Loads the module and initializes MPI. Blocks until all ranks have.
  //   kUnimplemented       this build, or this machine, has no libgyre_mpi; says where it was looked for
  //   kFailedPrecondition  MPI's ranks are not Gyre's: the job was not started by mpirun
  //   kDeadlineExceeded    not all ranks came
  static absl::StatusOr<std::shared_ptr<Backend>> Load(int rank, int size, TimePoint deadline);
  explicit Backend(std::unique_ptr<Transport> transport);
  ~Backend();

  // All collectives of the communicator.
  Lane& lane() { return lane_; }

  // The call's operation. `refused`: why this rank may not make it; then all ranks end in that, and the communicator is
  // given up. REQUIRES: call.timeout is set; the call is no message.
  static std::shared_ptr<Pollable> Make(const std::shared_ptr<Backend>& self, Members members, const Call& call,
                                        const absl::Status& refused);

  Transport& transport() const { return *transport_; }

 private:
  const std::unique_ptr<Transport> transport_;
  Lane lane_;
};

}  // namespace gyre::internal::mpi
