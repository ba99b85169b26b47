// Which rank this process is, judged from the configuration and the launcher's variables. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/config.h"
#include "base/environment.h"

namespace gyre {

// How the ranks meet.
enum class Meeting {
  kAlone,          // one rank: nobody to meet
  kLauncherStore,  // the launcher serves the store at `store`
  kRankZeroStore,  // rank 0 serves it at `store`
  kLocalFile,      // rank 0 serves it at a loopback port that it writes into a file in the user's directory
  kHydraFile,      // likewise, the file named after the launcher process behind PMI_FD (MPICH)
};

struct Identity {
  int rank = 0;
  int size = 1;
  std::string launcher = "none";  // "gyrerun", "explicit", "openmpi", "mpich", "torchrun", "horovodrun", "slurm"
  std::string job_id;             // tells this job from others of the user; kHydraFile: still to be found
  uint64_t epoch = 0;             // how often the job was restarted
  Meeting meeting = Meeting::kAlone;
  std::string store;  // "host:port" for kLauncherStore and kRankZeroStore
};

// All launchers are judged by their variables alone; none is spoken to (docs/decisions/mpi_launchers.md has the
// reason). In this order: rank and size of `config` (gyrerun gives them, or the program itself); Open MPI and other
// PMIx launchers; MPICH's Hydra; torchrun's variables; horovodrun --gloo; a Slurm step. None: alone. Where the
// configuration has a store, ranks meet there whatever the launcher. The epoch is the configuration's, or else what
// torchrun (on one host) and Slurm count.
//   kFailedPrecondition  half an environment: names the variable that is missing
//   kInvalidArgument     a variable that is not a number, a rank that is not below the size
//   kUnimplemented       ranks on several hosts without a store they could share
absl::StatusOr<Identity> FindIdentity(const Config& config, const Environment& environment);

}  // namespace gyre
