// A schedule for data whose blocks lie in several places.
#pragma once

#include <span>
#include <vector>

#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// Each step on block b becomes the same step on each of pieces[b], in their order; `blocks` is the number of blocks of
// the result. A block without pieces loses its steps. Pure; right for all ranks if all are given the same pieces.
// REQUIRES: pieces.size() == schedule.blocks; the pieces are in [0, blocks), and none is twice there.
Schedule Expand(const Schedule& schedule, std::span<const std::vector<int>> pieces, int blocks);

}  // namespace gyre::internal
