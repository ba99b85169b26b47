// Allreduce by recursive doubling: in each round a rank exchanges all it has with a partner twice as far away. As few
// rounds as is possible: good for little data.
//
// p ranks, S bytes in one block, q the largest power of two that is not above p. A rank sends log2(q) S bytes in
// log2(q) rounds. The p - q ranks left over first hand their block to one of the q and get the result back at the end:
// up to two rounds more, and S bytes more sent by either. Between two ranks it is the direct exchange.
//
// All ranks combine in the same tree, but each partner has its own operand at hand. The bits are the same everywhere,
// whatever is combined, if whoever reduces puts the operand of the lower rank first; otherwise only of reductions that
// are commutative to the bit, which a maximum of numbers and NaN, or of +0 and -0, is not.
//
// From Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (IJHPCA 19,
// 2005), the section on allreduce.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// Pure; one rank alone has no steps. REQUIRES: 0 <= rank < size.
Schedule RecursiveDoublingAllReduce(int rank, int size);

}  // namespace gyre::internal
