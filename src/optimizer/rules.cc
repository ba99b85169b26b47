#include "optimizer/rules.h"

#include <cmath>
#include <cstddef>

namespace gyre {

namespace {

// base^exponent by squaring: std::pow may differ in the last bit from one C library to the next.
double Power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace

void UpdateSgd(const Sgd& rule, std::span<float> weights, std::span<const float> gradient) {
  const float rate = rule.learning_rate, decay = rule.weight_decay;
  float* __restrict w = weights.data();
  const float* __restrict g = gradient.data();
  for (size_t i = 0; i < weights.size(); ++i) {
    w[i] -= rate * (g[i] + decay * w[i]);
  }
}

void UpdateMomentum(const Momentum& rule, std::span<float> weights, std::span<const float> gradient,
                    std::span<float> velocity) {
  const float rate = rule.learning_rate, decay = rule.weight_decay, momentum = rule.momentum;
  float* __restrict w = weights.data();
  float* __restrict v = velocity.data();
  const float* __restrict g = gradient.data();
  if (rule.nesterov) {
    for (size_t i = 0; i < weights.size(); ++i) {
      const float slope = g[i] + decay * w[i];
      v[i] = momentum * v[i] + slope;
      w[i] -= rate * (slope + momentum * v[i]);
    }
    return;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    v[i] = momentum * v[i] + (g[i] + decay * w[i]);
    w[i] -= rate * v[i];
  }
}

void UpdateAdam(const Adam& rule, int64_t step, std::span<float> weights, std::span<const float> gradient,
                std::span<float> mean, std::span<float> variance) {
  // The two bias corrections are scalars: rate * sqrt(c2) / c1 * m / (sqrt(v) + epsilon * sqrt(c2)) is the same rule
  // with a division less a weight.
  const double root = std::sqrt(1.0 - Power(rule.beta2, step));
  const auto rate = static_cast<float>(rule.learning_rate * root / (1.0 - Power(rule.beta1, step)));
  const auto epsilon = static_cast<float>(rule.epsilon * root);
  const float decay = rule.weight_decay, beta1 = rule.beta1, beta2 = rule.beta2;
  const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
  float* __restrict w = weights.data();
  float* __restrict m = mean.data();
  float* __restrict v = variance.data();
  const float* __restrict g = gradient.data();
  for (size_t i = 0; i < weights.size(); ++i) {
    const float slope = g[i] + decay * w[i];
    m[i] = beta1 * m[i] + rest1 * slope;
    v[i] = beta2 * v[i] + rest2 * (slope * slope);
    w[i] -= rate * m[i] / (std::sqrt(v[i]) + epsilon);
  }
}

void UpdateAdagrad(const Adagrad& rule, std::span<float> weights, std::span<const float> gradient,
                   std::span<float> sum_of_squares) {
  const float rate = rule.learning_rate, decay = rule.weight_decay, epsilon = rule.epsilon;
  float* __restrict w = weights.data();
  float* __restrict s = sum_of_squares.data();
  const float* __restrict g = gradient.data();
  for (size_t i = 0; i < weights.size(); ++i) {
    const float slope = g[i] + decay * w[i];
    s[i] += slope * slope;
    w[i] -= rate * slope / (std::sqrt(s[i]) + epsilon);
  }
}

}  // namespace gyre
