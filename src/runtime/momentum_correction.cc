#include "runtime/momentum_correction.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

MomentumOf MomentumIn(const OptimizerConfig& rule) {
  if (const auto* sgd = std::get_if<Sgd>(&rule)) return {.weight_decay = sgd->weight_decay};
  const auto* const momentum = std::get_if<Momentum>(&rule);
  if (momentum == nullptr) return {.linear = false};
  return {.momentum = momentum->momentum, .nesterov = momentum->nesterov, .weight_decay = momentum->weight_decay};
}

absl::Status CheckTakesOver(const Dgc& dgc, const OptimizerConfig& rule) {
  const MomentumOf own = MomentumIn(rule);
  if (!own.linear) {
    return absl::InvalidArgumentError(
        "dgc is for Momentum, or Sgd without momentum: what it sends is a velocity, from which Adam and Adagrad cannot "
        "tell the gradient");
  }
  const bool same_form = dgc.momentum == 0 || dgc.nesterov == own.nesterov;
  if (dgc.momentum == own.momentum && same_form) return absl::OkStatus();
  const auto text = [](float momentum, bool nesterov) {
    return absl::StrCat(momentum, nesterov && momentum != 0 ? " (Nesterov)" : "");
  };
  return absl::InvalidArgumentError(absl::StrCat("two momentums: dgc's is ", text(dgc.momentum, dgc.nesterov),
                                                 ", the optimizer's ", text(own.momentum, own.nesterov),
                                                 "; dgc takes over the optimizer's, so they must be equal"));
}

absl::StatusOr<std::optional<OptimizerConfig>> ServersRule(const Compression& compression,
                                                           const std::optional<OptimizerConfig>& rule) {
  const auto* const dgc = std::get_if<Dgc>(&compression);
  if (dgc == nullptr) return rule;
  RETURN_IF_ERROR(CheckTakesOver(*dgc, rule.value_or(Sgd{})));
  if (!rule) return rule;
  const MomentumOf own = MomentumIn(*rule);
  if (own.momentum != 0 && own.weight_decay != 0) {
    return absl::InvalidArgumentError(
        "parameter servers take no weight decay with a dgc's momentum: they would decay without momentum");
  }
  const float rate = std::visit([](const auto& config) { return config.learning_rate; }, *rule);
  return Sgd{.learning_rate = rate, .weight_decay = own.weight_decay};
}

}  // namespace gyre::internal
