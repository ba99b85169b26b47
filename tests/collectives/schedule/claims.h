// What each collective must have done, said of what the prover found. `root` matters to broadcast and reduce alone.
#pragma once

#include "absl/status/status.h"
#include "collectives/schedule/prover.h"

namespace gyre::internal {

using Claim = absl::Status (*)(const Outcome& outcome, int root);

// All ranks hold all blocks with each rank's contribution once, combined in the same tree: the same bits.
absl::Status AllReduced(const Outcome& outcome, int root);
// Rank r holds block r with each rank's contribution once.
absl::Status ReduceScattered(const Outcome& outcome, int root);
// All ranks hold rank b's block b.
absl::Status AllGathered(const Outcome& outcome, int root);
// All ranks hold the root's blocks.
absl::Status Broadcasted(const Outcome& outcome, int root);
// The root holds all blocks with each rank's contribution once.
absl::Status Reduced(const Outcome& outcome, int root);
// Block (ranks + a) of rank b is block b of rank a; what went out, and the own two blocks, are as before.
absl::Status Exchanged(const Outcome& outcome, int root);
// Every rank has heard of every other. Of schedules whose receives were made to reduce: what arrives adds to what a
// rank knows.
absl::Status AllHaveCome(const Outcome& outcome, int root);

}  // namespace gyre::internal
