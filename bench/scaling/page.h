// The report of gyre-bench ps-vs-allreduce: one HTML page with its plots in it, which needs nothing else. Says of every
// figure whether it was measured or predicted.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"
#include "report/chart.h"
#include "scaling/findings.h"
#include "scaling/predict.h"

namespace gyre::bench {

// Predictions with so many workers on each host.
struct Scaled {
  int workers_per_host = 1;
  std::vector<Prediction> predictions{};
};

struct ScalingPage {
  std::string command{};  // as it was typed
  std::vector<Model> models{};
  Setting setting{};
  std::vector<Scaled> scaled{};
  std::vector<Finding> findings{};
  std::vector<Bars> measured{};    // beside what was predicted of it
  std::vector<Bars> stragglers{};  // likewise
};

// kInvalidArgument: the setting is out of its range.
absl::StatusOr<std::string> ToHtml(const ScalingPage& report);

}  // namespace gyre::bench
