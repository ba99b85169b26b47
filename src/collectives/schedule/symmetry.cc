#include "collectives/schedule/symmetry.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "collectives/schedule/steps.h"

namespace gyre::internal {

int Moved(Symmetry symmetry, int rank, int from, int to, int size) {
  return symmetry == Symmetry::kFlip ? rank ^ from ^ to : Wrapped(rank + to - from, size);
}

bool IsMoved(Symmetry symmetry, const Schedule& zero, const Schedule& other, int to, int size) {
  if (zero.blocks != other.blocks || zero.steps.size() != other.steps.size()) return false;
  constexpr int kUnknown = -1;
  std::vector<int> becomes(static_cast<size_t>(zero.blocks), kUnknown), was = becomes;
  for (size_t i = 0; i < zero.steps.size(); ++i) {
    const Step &a = zero.steps[i], &b = other.steps[i];
    if (a.kind != b.kind || b.peer != Moved(symmetry, a.peer, 0, to, size)) return false;
    int &there = becomes[static_cast<size_t>(a.block)], &here = was[static_cast<size_t>(b.block)];
    if (there == kUnknown && here == kUnknown) {
      there = b.block;
      here = a.block;
    }
    if (there != b.block || here != a.block) return false;
  }
  return true;
}

Symmetry SymmetryOf(const std::function<Schedule(int rank)>& make, int size) {
  const Schedule zero = make(0);
  const int samples[] = {1, size / 3, size / 2, size - 1};
  for (const Symmetry symmetry : {Symmetry::kTurn, Symmetry::kFlip}) {
    if (symmetry == Symmetry::kFlip && !std::has_single_bit(static_cast<unsigned>(size))) continue;
    const bool all = std::ranges::all_of(
        samples, [&](int rank) { return rank % size == 0 || IsMoved(symmetry, zero, make(rank), rank, size); });
    if (all) return symmetry;
  }
  return Symmetry::kNone;
}

}  // namespace gyre::internal
