// Alltoall by few links: each piece travels in jumps of powers of two, relayed by ranks on its way, and all that must
// jump equally far goes the same way. Good only where links to everybody cost more than sending pieces several times.
//
// p ranks, 2p blocks as in pairwise.h: block b goes out to rank b, block p + b comes in from rank b. A rank's own two
// are not touched. A piece for the rank `a` further on jumps once for each bit of a; it is relayed in place of the
// piece that is to come in from the rank `a` before the relay, which jumps as far, in the same rounds, and arrives
// there last: that is why no blocks are needed beside those 2p. What goes out is only read. So the numbers of a piece
// differ from rank to rank. REQUIRES of the blocks: all have one size, but for the rank's own two; they do not overlap.
//
// A rank sends as many pieces as the numbers 1 to p - 1 have bits (p/2 log2(p), if p is a power of two), in at most
// ceil(log2 p) rounds to ceil(log2 p) peers. The pieces of a round lie in many places and are messages of their own,
// each with its header: what the paper gains by packing them into one is not to be had here.
//
// From Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
// message-passing systems" (IEEE TPDS 8, 1997), the section on index, with radix 2. Numbered blocks stand for the
// rotations before and after.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// Pure; one rank alone has no steps. REQUIRES: 0 <= rank < size.
Schedule BruckAllToAll(int rank, int size);

}  // namespace gyre::internal
