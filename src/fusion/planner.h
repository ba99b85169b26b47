// Planner: buckets that leave the least communication uncovered, given when gradients become ready and what sending
// them costs. Pure and deterministic: equal inputs make equal plans, so ranks that agree on the inputs agree on the
// plan.
//
// The model: buckets are reduced one after the other, each when all its tensors are ready and the one before is done.
// The finish of the first j tensors, in the order of readiness, is the minimum over i < j of
//   max(finish(i), ready(j)) + cost(tensors i to j)
// because an earlier finish never does harm. This is dynamic programming over the borders between buckets; the classic
// alternative, buckets of equal size (Li et al., "PyTorch Distributed", VLDB 2020, section 4.2), is PlanBySize.
// A small last bucket needs no rule here: what becomes ready last is uncovered as long as it takes.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "fusion/plan.h"

namespace gyre::fusion {

// What reducing a bucket takes: seconds_per_bucket + bytes * seconds_per_byte.
struct CostModel {
  double seconds_per_bucket = 0;
  double seconds_per_byte = 0;
};

struct CostSample {
  int64_t bytes = 0;
  double seconds = 0;
};

// The line through the first and the last sample, but with no number below 0. Of one sample, all is a bucket's.
// REQUIRES: one sample at least, of growing sizes.
CostModel FitCost(std::span<const CostSample> samples);

// `ready`: by tensor, seconds since any common beginning. Among plans within 1 % of the least uncovered time it is one
// of the fewest borders: what is hidden anyway goes into large buckets. Tensors of different dtypes between the same
// two borders make a bucket each. Beyond 512 tensors, neighbours are taken together first, into pieces of 1/256 of all
// bytes. Between two borders are at most `most_bytes`, or one tensor. Takes milliseconds for hundreds of tensors.
// REQUIRES: ready.size() == tensors.size(); all numbers are finite, costs not negative.
Plan PlanByCost(std::span<const TensorInfo> tensors, std::span<const double> ready, const CostModel& model,
                int64_t most_bytes = std::numeric_limits<int64_t>::max());

// For costs that are not quite known: of the plan by cost, that by twice the cost, and the one with the borders of
// both, the one that leaves the least uncovered if costs are as given and if they are twice that, taken together.
// Communication that is hidden just so is not hidden when it takes longer beside the computation than by itself. For
// the same reason a bucket has 8 MiB at most (or one tensor), or as much as takes four times what a bucket costs
// without any bytes.
// `grain`: coarser (above 1) or finer buckets, as if one cost so many times as much without any bytes, and that limit
// times so much.
Plan PlanCautiously(std::span<const TensorInfo> tensors, std::span<const double> ready, const CostModel& model,
                    double grain = 1);

// From the moment when all tensors are ready to the end of the last bucket, by the same model, for any plan.
// REQUIRES: as above, and the plan is for these tensors.
double UncoveredSeconds(const Plan& plan, std::span<const TensorInfo> tensors, std::span<const double> ready,
                        const CostModel& model);

}  // namespace gyre::fusion
