// What is to be known of an OptimizerConfig, whatever carries it out.
#pragma once

#include "absl/status/status.h"
#include "gyre/optimizer.h"

namespace gyre {

// kInvalidArgument names the hyperparameter that is out of its range or not finite.
absl::Status CheckConfig(const OptimizerConfig& config);
absl::Status CheckLearningRate(float learning_rate);

float LearningRateOf(const OptimizerConfig& config);
OptimizerConfig WithLearningRate(OptimizerConfig config, float learning_rate);

// Floats a weight that the rule keeps, 0 to 2, and what they are at first.
int AccumulatorsOf(const OptimizerConfig& config);
float InitialOf(const OptimizerConfig& config);

}  // namespace gyre
