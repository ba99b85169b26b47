// Measurements of bench/ps_vs_allreduce and bench/stragglers, as bars beside what is predicted of them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "report/chart.h"

namespace gyre::bench {

// JSON lines of jobs on limited links: each has its model, strategy (as Strategies names it), links and images/s. The
// prediction is of the same model that all others are of. One chart a model and number of workers.
// kInvalidArgument: the file, and what is wrong with it.
absl::StatusOr<std::vector<Bars>> ScalingBars(const std::string& path);

// JSON lines of gyre-bench ps-steps; medians of those that are alike. One chart for each kind of slowness.
absl::StatusOr<std::vector<Bars>> StragglerBars(const std::string& path);

}  // namespace gyre::bench
