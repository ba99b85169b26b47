// Finds libgyre_ucx.
#pragma once

#include "absl/status/statusor.h"
#include "transport/ucx/wire.h"

namespace gyre::ucx {

// kUnimplemented: there is none; kFailedPrecondition: it is another Gyre's.
absl::StatusOr<const Module*> LoadModule();

}  // namespace gyre::ucx
