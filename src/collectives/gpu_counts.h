// What an alltoall's ranks say to each other of their counts before anything is queued on their GPUs.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace gyre::internal {

// Whether every rank sends to each what that one expects. `table`: a row for each of `size` ranks: its counts, then its
// receive_counts. kInvalidArgument names the first two that differ.
absl::Status CountsAgree(std::span<const int64_t> table, int size);

}  // namespace gyre::internal
