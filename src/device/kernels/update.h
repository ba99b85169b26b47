// Update rules of weights (gyre/optimizer.h has the formulas), one weight at a time: for the loops of src/optimizer on
// the CPU and the kernels on a GPU. Each operation is rounded on its own: sources that include this are compiled
// without fused multiply-adds, and the bits are then the same everywhere.
//
// A rule's Update takes a weight, its gradient, and as many accumulators as the rule has; the rest is not looked at.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/kernels/element.h"
#include "device/kernels/team.h"

namespace gyre::device::kernels {

struct SgdRule {
  static constexpr int kAccumulators = 0;
  float rate, decay;

  GYRE_GPU void Update(float& w, float g, float& /*first*/, float& /*second*/) const { w -= rate * (g + decay * w); }
};

struct HeavyBallRule {
  static constexpr int kAccumulators = 1;
  float rate, decay, momentum;

  GYRE_GPU void Update(float& w, float g, float& v, float& /*second*/) const {
    v = momentum * v + (g + decay * w);
    w -= rate * v;
  }
};

struct NesterovRule {
  static constexpr int kAccumulators = 1;
  float rate, decay, momentum;

  GYRE_GPU void Update(float& w, float g, float& v, float& /*second*/) const {
    const float slope = g + decay * w;
    v = momentum * v + slope;
    w -= rate * (slope + momentum * v);
  }
};

// With the bias corrections in `rate` and `epsilon`: rate * sqrt(c2) / c1 * m / (sqrt(v) + epsilon * sqrt(c2)) is the
// same rule with a division less a weight.
struct AdamRule {
  static constexpr int kAccumulators = 2;
  float rate, epsilon, decay, beta1, rest1, beta2, rest2;

  GYRE_GPU void Update(float& w, float g, float& m, float& v) const {
    const float slope = g + decay * w;
    m = beta1 * m + rest1 * slope;
    v = beta2 * v + rest2 * (slope * slope);
    w -= rate * m / (sqrtf(v) + epsilon);
  }
};

struct AdagradRule {
  static constexpr int kAccumulators = 1;
  float rate, epsilon, decay;

  GYRE_GPU void Update(float& w, float g, float& s, float& /*second*/) const {
    const float slope = g + decay * w;
    s += slope * slope;
    w -= rate * slope / (sqrtf(s) + epsilon);
  }
};

// One tensor to be updated. Plain data: it is passed to the kernel as it is.
struct Weights {
  float* weights;
  const float* gradient;  // null: zeros
  float* first;           // accumulators; null where the rule has none
  float* second;
  int64_t count;
};

// Thread `thread` of `threads`: every threads-th four elements.
template <class Rule>
GYRE_GPU void UpdateFours(const Rule& rule, const Weights& t, int64_t thread, int64_t threads) {
  const bool aligned =
      IsAligned(t.weights, 16) && IsAligned(t.gradient, 16) && IsAligned(t.first, 16) && IsAligned(t.second, 16);
  for (int64_t i = 4 * thread; i < t.count; i += 4 * threads) {
    Pack<float, 4> w = LoadPack<4>(t.weights, i, t.count, aligned), g = {}, first = {}, second = {};
    if (t.gradient != nullptr) g = LoadPack<4>(t.gradient, i, t.count, aligned);
    if constexpr (Rule::kAccumulators > 0) first = LoadPack<4>(t.first, i, t.count, aligned);
    if constexpr (Rule::kAccumulators > 1) second = LoadPack<4>(t.second, i, t.count, aligned);
    GYRE_GPU_UNROLL
    for (int k = 0; k < 4; ++k) rule.Update(w.at[k], g.at[k], first.at[k], second.at[k]);
    StorePack<4>(w, t.weights, i, t.count, aligned);
    if constexpr (Rule::kAccumulators > 0) StorePack<4>(first, t.first, i, t.count, aligned);
    if constexpr (Rule::kAccumulators > 1) StorePack<4>(second, t.second, i, t.count, aligned);
  }
}

}  // namespace gyre::device::kernels
