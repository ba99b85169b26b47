// Barrier: in round k each rank tells the one 2^k further on that it and all it has heard of have come. After
// ceil(log2 p) rounds all have heard of all.
//
// One empty block, whose steps order the rounds: a rank sends the next message once the last one has arrived.
// ceil(log2 p) messages a rank, of no bytes.
//
// From Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization" (Int. J. Parallel Programming 17,
// 1988), the dissemination algorithm.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// Pure; one rank alone has no steps. REQUIRES: 0 <= rank < size.
Schedule DisseminationBarrier(int rank, int size);

}  // namespace gyre::internal
