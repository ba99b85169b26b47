// Alltoall, every piece straight from its sender to its receiver. In turn each rank sends to the next, to the one after
// that, and so on: at no time do all send to the same one.
//
// p ranks, 2p blocks: block b goes out to rank b, block p + b comes in from rank b. A rank's own two are not touched:
// that copy is the caller's. The peers' numbers of a piece differ: block b of rank a is block p + a of rank b. A rank
// sends and receives p - 1 messages, each piece once; none waits for another, so it is one round.
//
// From Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (IJHPCA 19,
// 2005), the section on all-to-all, the algorithm for long messages.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// Pure; one rank alone has no steps. REQUIRES: 0 <= rank < size.
Schedule PairwiseAllToAll(int rank, int size);

}  // namespace gyre::internal
