// MPICH's launcher, Hydra, as the ranks see it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace gyre {

// A name that the ranks of one job on this host share, and no other job has: the process at the other end of PMI_FD and
// when it started. Nothing is said on PMI_FD: a rank that has spoken PMI must end the conversation before it exits (or
// Hydra kills its peers), and one that has ended it cannot call MPI_Init any more. So MPI_Init may come before, after,
// or never.
//   kFailedPrecondition  not a descriptor of Hydra's
absl::StatusOr<std::string> HydraJobName(int pmi_fd);

}  // namespace gyre
