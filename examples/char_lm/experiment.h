// Two mistakes that the library does not make, made on purpose (--experiment): scripts/campaign convergence shows with
// them what error feedback is for, and why momentum must not be applied twice.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "gyre/distributed_optimizer.h"

namespace char_lm {

enum class Wrong {
  kNothing,
  kNoResidual,      // what compression did not send is forgotten after each step
  kDoubleMomentum,  // momentum over updates that have momentum in them already
};

// Made on every rank alike, it leaves the ranks' weights equal. No call communicates.
class Experiment {
 public:
  // `momentum`: of kDoubleMomentum.
  Experiment(Wrong wrong, float momentum) : wrong_(wrong), momentum_(momentum) {}

  // After the optimizer's Start, with its weights; and again after each step.
  void Start(std::span<const float> weights);
  absl::Status AfterStep(gyre::DistributedOptimizer& optimizer, std::span<float> weights);

 private:
  void AddMomentum(std::span<float> weights);

  const Wrong wrong_;
  const float momentum_;
  std::vector<float> before_;    // the weights before the step
  std::vector<float> velocity_;  // of the weights: the second momentum
};

}  // namespace char_lm
