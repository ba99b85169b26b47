#include "collectives/schedule/expand.h"

namespace gyre::internal {

Schedule Expand(const Schedule& schedule, std::span<const std::vector<int>> pieces, int blocks) {
  Schedule expanded{.blocks = blocks, .steps = {}};
  for (const Step& step : schedule.steps) {
    for (const int piece : pieces[static_cast<size_t>(step.block)]) {
      expanded.steps.push_back({step.kind, step.peer, piece});
    }
  }
  return expanded;
}

}  // namespace gyre::internal
