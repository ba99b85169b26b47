// What the field has found of parameter servers and allreduce, and whether predictions show it: a field report of
// distributed TensorFlow on Kubernetes (2017), and Jiang et al., OSDI 2020. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/model.h"
#include "scaling/predict.h"

namespace gyre::bench {

struct Finding {
  std::string claim;
  bool shown = false;
  std::string evidence;  // figures, whichever way they point
};

// Of predictions with one worker a host; those that they say nothing of, for want of models or workers, are left out.
// `setting`: theirs.
std::vector<Finding> Findings(std::span<const Model> models, std::span<const Prediction> predictions,
                              const Setting& setting);

// Floating-point operations of a step for each parameter and sample.
double FlopsPerParameter(const Model& model);

}  // namespace gyre::bench
