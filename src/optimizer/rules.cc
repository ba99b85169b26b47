#include "optimizer/rules.h"

#include <cmath>
#include <cstddef>

namespace gyre {

namespace {

using device::kernels::AdagradRule;
using device::kernels::AdamRule;
using device::kernels::HeavyBallRule;
using device::kernels::NesterovRule;
using device::kernels::SgdRule;

// base^exponent by squaring: std::pow may differ in the last bit from one C library to the next.
double Power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

SgdRule RuleOf(const Sgd& rule) {
  return {.rate = rule.learning_rate, .decay = rule.weight_decay};
}

// Rule: HeavyBallRule or NesterovRule.
template <class Rule>
Rule RuleOf(const Momentum& rule) {
  return {.rate = rule.learning_rate, .decay = rule.weight_decay, .momentum = rule.momentum};
}

// The two bias corrections are scalars.
AdamRule RuleOf(const Adam& rule, int64_t step) {
  const double root = std::sqrt(1.0 - Power(rule.beta2, step));
  return {.rate = static_cast<float>(rule.learning_rate * root / (1.0 - Power(rule.beta1, step))),
          .epsilon = static_cast<float>(rule.epsilon * root),
          .decay = rule.weight_decay,
          .beta1 = rule.beta1,
          .rest1 = 1.0f - rule.beta1,
          .beta2 = rule.beta2,
          .rest2 = 1.0f - rule.beta2};
}

AdagradRule RuleOf(const Adagrad& rule) {
  return {.rate = rule.learning_rate, .epsilon = rule.epsilon, .decay = rule.weight_decay};
}

template <class Rule>
void Update(const Rule rule, std::span<float> weights, std::span<const float> gradient) {
  static_assert(Rule::kAccumulators == 0);
  float* __restrict w = weights.data();
  const float* __restrict g = gradient.data();
  float none = 0;
  for (size_t i = 0; i < weights.size(); ++i) rule.Update(w[i], g[i], none, none);
}

template <class Rule>
void Update(const Rule rule, std::span<float> weights, std::span<const float> gradient, std::span<float> state) {
  static_assert(Rule::kAccumulators == 1);
  float* __restrict w = weights.data();
  float* __restrict first = state.data();
  const float* __restrict g = gradient.data();
  float none = 0;
  for (size_t i = 0; i < weights.size(); ++i) rule.Update(w[i], g[i], first[i], none);
}

template <class Rule>
void Update(const Rule rule, std::span<float> weights, std::span<const float> gradient, std::span<float> one,
            std::span<float> other) {
  static_assert(Rule::kAccumulators == 2);
  float* __restrict w = weights.data();
  float* __restrict first = one.data();
  float* __restrict second = other.data();
  const float* __restrict g = gradient.data();
  for (size_t i = 0; i < weights.size(); ++i) rule.Update(w[i], g[i], first[i], second[i]);
}

}  // namespace

device::UpdateRule RuleAt(const OptimizerConfig& config, int64_t step) {
  if (const auto* sgd = std::get_if<Sgd>(&config)) return RuleOf(*sgd);
  if (const auto* adam = std::get_if<Adam>(&config)) return RuleOf(*adam, step);
  if (const auto* adagrad = std::get_if<Adagrad>(&config)) return RuleOf(*adagrad);
  const auto& momentum = std::get<Momentum>(config);
  if (momentum.nesterov) return RuleOf<NesterovRule>(momentum);
  return RuleOf<HeavyBallRule>(momentum);
}

void UpdateSgd(const Sgd& rule, std::span<float> weights, std::span<const float> gradient) {
  Update(RuleOf(rule), weights, gradient);
}

void UpdateMomentum(const Momentum& rule, std::span<float> weights, std::span<const float> gradient,
                    std::span<float> velocity) {
  if (rule.nesterov) return Update(RuleOf<NesterovRule>(rule), weights, gradient, velocity);
  Update(RuleOf<HeavyBallRule>(rule), weights, gradient, velocity);
}

void UpdateAdam(const Adam& rule, int64_t step, std::span<float> weights, std::span<const float> gradient,
                std::span<float> mean, std::span<float> variance) {
  Update(RuleOf(rule, step), weights, gradient, mean, variance);
}

void UpdateAdagrad(const Adagrad& rule, std::span<float> weights, std::span<const float> gradient,
                   std::span<float> sum_of_squares) {
  Update(RuleOf(rule), weights, gradient, sum_of_squares);
}

}  // namespace gyre
