#include "experiment.h"

namespace char_lm {

void Experiment::Start(std::span<const float> weights) {
  if (wrong_ != Wrong::kDoubleMomentum) return;
  before_.assign(weights.begin(), weights.end());
  velocity_.assign(weights.size(), 0.0f);
}

absl::Status Experiment::AfterStep(gyre::DistributedOptimizer& optimizer, std::span<float> weights) {
  if (wrong_ == Wrong::kDoubleMomentum) AddMomentum(weights);
  if (wrong_ != Wrong::kNoResidual) return absl::OkStatus();
  return optimizer.reducer().RestoreCompression({});  // of nobody: it keeps nothing
}

// The heavy ball's step, of which the optimizer's is the gradient's part.
void Experiment::AddMomentum(std::span<float> weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    velocity_[i] = momentum_ * velocity_[i] + (weights[i] - before_[i]);
    weights[i] = before_[i] + velocity_[i];
    before_[i] = weights[i];
  }
}

}  // namespace char_lm
