// One value from rank 0 to all ranks, through the launcher's own key-value space.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace gyre {

// Both are collective: every rank calls them, the same number of times; rank 0's `value` (printable, no blanks, under
// 512 bytes) is returned everywhere.
//   kDeadlineExceeded  not all ranks came; the launcher's connection is of no more use to Gyre
//   kUnavailable       the launcher does not answer

// PMI-1, the line protocol of MPICH's Hydra, spoken on the descriptor PMI_FD. Leaves the descriptor as it found it, so
// that MPI_Init may come before or after; not while another thread is in MPI_Init or MPI_Finalize. After MPI_Finalize
// Hydra answers no more.
absl::StatusOr<std::string> PmiBroadcast(int fd, int rank, const std::string& value, TimePoint deadline);

// PMIx, of Open MPI's mpirun and srun --mpi=pmix. kUnimplemented in a build without it. MPI_Init may come before or
// after.
absl::StatusOr<std::string> PmixBroadcast(int rank, const std::string& value, TimePoint deadline);

}  // namespace gyre
