// Broadcast and reduce along a binomial tree: the ranks that have the data double in each round. Few rounds, but the
// root sends (or receives) the data once in each: good for little data.
//
// p ranks, S bytes in one block. No byte crosses more than floor(log2 p) links. In a broadcast every rank but the root
// receives S bytes, the root sends ceil(log2 p) S, the others between nothing and that; in a reduce the other way
// round. Pure functions; one rank alone has no steps. REQUIRES: 0 <= rank, root < size.
//
// From Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (IJHPCA 19,
// 2005), the sections on broadcast and reduce.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

Schedule BinomialBroadcast(int rank, int size, int root);

// Only the root's block matters afterwards; the others are overwritten.
Schedule BinomialReduce(int rank, int size, int root);

}  // namespace gyre::internal
