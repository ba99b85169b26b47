// Symmetry: where all ranks do the same, each seen from where it stands, one rank's schedule says what all do.
#pragma once

#include <functional>

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// How one rank's schedule becomes another's: by a change of numbers that takes the one to the other, and every two
// ranks to two who stand to each other as they did.
enum class Symmetry {
  kNone,
  kTurn,  // from a to b: rank r becomes r + b - a, around the ring
  kFlip,  // from a to b: rank r becomes r ^ a ^ b; the ranks are a power of two
};

// What becomes of `rank` where `from` becomes `to`. REQUIRES: symmetry is not kNone.
int Moved(Symmetry symmetry, int rank, int from, int to, int size);

// Whether rank `to`'s schedule is rank 0's with all numbers changed so: the same steps in the same order, with blocks
// numbered in any way.
bool IsMoved(Symmetry symmetry, const Schedule& zero, const Schedule& other, int to, int size);

// What makes the schedules of all ranks out of rank 0's. Looks at a sample of the ranks: at all, for the schedules of
// this folder, look its tests.
Symmetry SymmetryOf(const std::function<Schedule(int rank)>& make, int size);

}  // namespace gyre::internal
