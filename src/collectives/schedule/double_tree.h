// Broadcast, reduce and allreduce along two binary trees at once, half of the data in each. A rank that passes data on
// in one tree is a leaf of the other: all send about as much as they receive, as in a chain, and the rounds grow with
// the logarithm of the ranks only. Good for much data on many ranks.
//
// p ranks, S bytes in two blocks, block t for tree t; they should be of one size. The trees of a broadcast are over all
// ranks but the root, which sends one half to the top of each: every other rank receives S bytes, none sends more than
// S, in ceil(log2 p) rounds. A reduce is the same the other way round. The trees of an allreduce are over all ranks, up
// and then down: no rank sends or receives more than 2 S, in 2 floor(log2 p) rounds.
//
// The paper cuts the halves into segments, so that a rank sends one while the next arrives. Here a block is sent on
// while it still arrives, and no stream of a broadcast or reduce (p > 2) carries both halves, so that the trees cannot
// hold each other up. In an allreduce a stream may carry one half up and the other down; all that goes up goes first.
// Why segments do not mend that: docs/algorithms.md.
//
// From Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (Parallel
// Computing 35, 2009), the sections on broadcast, reduction, and the layout of the trees by mirroring and shifting.
#pragma once

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// Pure functions; one rank alone has no steps. REQUIRES: 0 <= rank, root < size.

Schedule DoubleTreeBroadcast(int rank, int size, int root);

// Only the root's blocks matter afterwards; the others are overwritten.
Schedule DoubleTreeReduce(int rank, int size, int root);

// All end with both blocks reduced, each at the top of its tree, hence with the same bits everywhere.
Schedule DoubleTreeAllReduce(int rank, int size);

}  // namespace gyre::internal
