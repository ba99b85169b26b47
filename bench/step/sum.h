// SumInPlace: a peer's allreduce, as the step benchmark needs it.
#pragma once

#include <functional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/communicator.h"

namespace gyre::bench {

// The elements become the sums over all ranks. Blocks; all ranks call it alike.
using SumInPlace = std::function<absl::Status(std::span<float>)>;

// Gloo over TCP, by the algorithm that it chooses itself. Made by all ranks alike. kUnimplemented where this build has
// no Gloo.
absl::StatusOr<SumInPlace> MakeGlooSum(Communicator& world);

}  // namespace gyre::bench
