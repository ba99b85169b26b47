// Momentum correction (Lin et al., ICLR 2018, section 3.1): whose momentum a Dgc takes over, so that it is applied
// once.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/compression.h"
#include "gyre/optimizer.h"

namespace gyre::internal {

// What a rule has of momentum.
struct MomentumOf {
  bool linear = true;  // one that velocities can be left to
  float momentum = 0;
  bool nesterov = false;
  float weight_decay = 0;
};
MomentumOf MomentumIn(const OptimizerConfig& rule);

// kInvalidArgument unless the momentum that `dgc` accumulates is what the rule would have done.
absl::Status CheckTakesOver(const Dgc& dgc, const OptimizerConfig& rule);

// What servers do with what workers push: the rule, or, where these push velocities, what is left of it. None: they add
// up. kInvalidArgument: see CheckTakesOver; and weight decay, which servers could not apply momentum to.
absl::StatusOr<std::optional<OptimizerConfig>> ServersRule(const Compression& compression,
                                                           const std::optional<OptimizerConfig>& rule);

}  // namespace gyre::internal
