#include "optimizer/config.h"

#include <cmath>
#include <string_view>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre {

namespace {

// Written so that NaN fails.
absl::Status CheckAtLeastZero(std::string_view name, float value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), " is ", value, "; it must be finite and at least 0"));
}

absl::Status CheckPositive(std::string_view name, float value) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), " is ", value, "; it must be finite and above 0"));
}

absl::Status CheckBelowOne(std::string_view name, float value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), " is ", value, "; it must be at least 0 and below 1"));
}

absl::Status CheckRule(const Sgd&) {
  return absl::OkStatus();
}

absl::Status CheckRule(const Momentum& rule) {
  return CheckBelowOne("momentum", rule.momentum);
}

absl::Status CheckRule(const Adam& rule) {
  RETURN_IF_ERROR(CheckBelowOne("beta1", rule.beta1));
  RETURN_IF_ERROR(CheckBelowOne("beta2", rule.beta2));
  return CheckPositive("epsilon", rule.epsilon);
}

absl::Status CheckRule(const Adagrad& rule) {
  RETURN_IF_ERROR(CheckPositive("epsilon", rule.epsilon));
  return CheckAtLeastZero("initial_accumulator", rule.initial_accumulator);
}

}  // namespace

absl::Status CheckConfig(const OptimizerConfig& config) {
  return std::visit(
      [](const auto& rule) -> absl::Status {
        RETURN_IF_ERROR(CheckLearningRate(rule.learning_rate));
        RETURN_IF_ERROR(CheckAtLeastZero("weight_decay", rule.weight_decay));
        return CheckRule(rule);
      },
      config);
}

absl::Status CheckLearningRate(float learning_rate) {
  return CheckAtLeastZero("learning_rate", learning_rate);
}

float LearningRateOf(const OptimizerConfig& config) {
  return std::visit([](const auto& rule) { return rule.learning_rate; }, config);
}

OptimizerConfig WithLearningRate(OptimizerConfig config, float learning_rate) {
  std::visit([=](auto& rule) { rule.learning_rate = learning_rate; }, config);
  return config;
}

int AccumulatorsOf(const OptimizerConfig& config) {
  if (std::holds_alternative<Sgd>(config)) return 0;
  return std::holds_alternative<Adam>(config) ? 2 : 1;
}

float InitialOf(const OptimizerConfig& config) {
  const auto* const adagrad = std::get_if<Adagrad>(&config);
  return adagrad != nullptr ? adagrad->initial_accumulator : 0.0f;
}

}  // namespace gyre
