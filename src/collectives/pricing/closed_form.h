// What each algorithm should cost by a formula, beside what its schedules cost event by event: docs/algorithms.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/pricing/price.h"
#include "collectives/schedule/schedule.h"

namespace gyre::internal {

// An algorithm of collectives/schedule, with root 0 if it has one, and its formula.
struct PricedAlgorithm {
  std::string_view operation;  // "allreduce", as gyre-bench names it; or "barrier"
  std::string_view name;       // "ring"
  std::function<Schedule(int rank, int size)> make;
  // Seconds for blocks of one size. Empty where there is no formula: where ranks are left over from a power of two, and
  // where a reduction is slower than the link, so that it is what others wait for. REQUIRES: size >= 1.
  std::function<std::optional<double>(int size, int64_t block_bytes, const PriceModel& model)> closed_form;

  // The bytes of a block where the whole is `bytes`: all blocks that a rank has, or sends to all ranks; rounded up.
  int64_t BlockBytes(int size, int64_t bytes) const;
};

std::vector<PricedAlgorithm> PricedAlgorithms();

}  // namespace gyre::internal
