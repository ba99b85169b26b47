// Collectives on a ring: each rank sends to the next one and receives from the one before, all at once. They send as
// few bytes as is possible and load all links alike: good for much data, while the rounds grow with the ranks.
//
// p ranks, S bytes in all p blocks; block b belongs to rank b. A rank sends p - 1 blocks in p - 1 rounds, which are
// (p-1)/p S bytes where the blocks are of one size; the allreduce, which is both after each other, twice that.
// Pure functions; a ring of one rank has no steps. REQUIRES: 0 <= rank < size.
//
// From Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (JPDC 69, 2009),
// the section on the algorithm for one logical ring.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// Rank r ends with block r reduced. The other blocks are overwritten with sums of some ranks.
Schedule RingReduceScatter(int rank, int size);

// Rank r begins with block r; all end with all blocks.
Schedule RingAllGather(int rank, int size);

// All end with all blocks reduced, each by one rank, hence with the same bits everywhere.
Schedule RingAllReduce(int rank, int size);

}  // namespace gyre::internal
