// Allreduce by recursive halving and doubling: a reduce-scatter in which partners split what they still share, then the
// same way back as an allgather. Few rounds and few bytes: good in between, best where the ranks are a power of two.
//
// p ranks, q the largest power of two that is not above p, S bytes in q blocks. A rank sends 2 (q-1)/q S bytes in
// 2 log2(q) rounds, if the blocks are of one size. The p - q ranks left over first hand all they have to one of the q
// and get the result back at the end: two rounds more, and S bytes more sent by either.
//
// Each block is reduced by one rank, hence the bits are the same everywhere.
//
// From Rabenseifner, "Optimization of collective reduction operations" (ICCS 2004), the section on allreduce; ranks
// left over are folded in whole, as in recursive doubling.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// Pure; one rank alone has no steps. REQUIRES: 0 <= rank < size.
Schedule HalvingDoublingAllReduce(int rank, int size);

// The q blocks of its schedules.
int HalvingDoublingBlocks(int size);

}  // namespace gyre::internal
