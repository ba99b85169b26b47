// Gloo's context for the ranks of a job: they meet through Gyre instead of a store of their own, whatever started them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gloo/context.h"
#include "gyre/communicator.h"

namespace gyre::bench {

// Over TCP: the loopback on one host, else the job's interface (GYRE_INTERFACE, or what leads to the store). All ranks
// call it alike.
absl::StatusOr<std::shared_ptr<gloo::Context>> MakeGlooContext(Communicator& world);

}  // namespace gyre::bench
