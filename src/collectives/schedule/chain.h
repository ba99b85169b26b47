// Broadcast and reduce along a chain of all ranks, from the root or to it. A block is sent on while it still arrives,
// so that much data takes little longer than over one link; but the first byte takes p - 1 messages.
//
// p ranks, S bytes in one block: p - 1 rounds, though each begins as soon as the first bytes of the one before are
// there. Every rank sends S bytes but the last of the chain, and receives S bytes but the first.
// Pure functions; one rank alone has no steps. REQUIRES: 0 <= rank, root < size.
//
// From Pjesivac-Grbovic et al., "Performance analysis of MPI collective operations" (Cluster Computing 10, 2007): the
// pipeline; the transport cuts it into segments, not the schedule.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

Schedule ChainBroadcast(int rank, int size, int root);

// Only the root's block matters afterwards; the others are overwritten.
Schedule ChainReduce(int rank, int size, int root);

}  // namespace gyre::internal
