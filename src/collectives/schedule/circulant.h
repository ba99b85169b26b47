// Recursive halving and doubling for any number of ranks: reduce-scatter, allgather, allreduce. As few bytes as a ring
// and as few rounds as a tree, whether or not the ranks are a power of two. Ranks far apart talk all at once: good from
// little data to much where the network bears that.
//
// p ranks, S bytes in all p blocks; block b belongs to rank b. The distances of the rounds come from halving p, rounded
// up, until 1: 12 gives 6, 3, 2, 1. In a round of the reduce-scatter at distance d, in which w blocks are left (p, then
// the distance before), each rank hands the last w - d of them to the one d further on. It sends p - 1 blocks in
// ceil(log2 p) such rounds, which are (p-1)/p S bytes where the blocks are of one size: neither can be less. The
// allgather is the same way back; the allreduce is both after each other, twice that.
//
// Counted as messages that wait for each other it is often less: where the ranks are no power of two, not all that is
// sent in a round waited for the one before. Each block is reduced by one rank, hence the bits of an allreduce are the
// same everywhere.
//
// From Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms" (arXiv 2410.14234, 2024); the allgather
// is, but for its distances, from Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems" (IEEE TPDS 8, 1997), the section on concatenation. Numbered
// blocks need none of the copying into place that the papers begin or end with.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// Pure functions; one rank alone has no steps. REQUIRES: 0 <= rank < size.

// Rank r ends with block r reduced. The other blocks are overwritten with sums of some ranks.
Schedule CirculantReduceScatter(int rank, int size);

// Rank r begins with block r; all end with all blocks.
Schedule CirculantAllGather(int rank, int size);

// All end with all blocks reduced.
Schedule CirculantAllReduce(int rank, int size);

}  // namespace gyre::internal
