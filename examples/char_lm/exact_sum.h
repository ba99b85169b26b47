// Sums that do not depend on order or grouping, so that any number of ranks trains the same model to the bit.
//
// The sum is one of slices, which are the same for any number of ranks. Floating-point addition rounds, so the sum of a
// batch's gradients depends on how the batch is dealt out, and training amplifies the last bit's difference to a
// visible one in some fifty steps. Here each term is first rounded to a multiple of a quantum; sums of such multiples
// are exact while they stay below 2^24 quanta.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace char_lm {

// For gradients: exact while terms stay below 1 and sums below 4 in magnitude, which a batch's mean gradient does by
// far unless the training is lost anyway.
//
// A slice's term is its share of the mean, and smaller the more slices there are; with too many it would be lost below
// the quantum, whatever their sum. Hence kMostSlices, which bounds the sum's error: half a quantum times as many.
inline constexpr float kGradientQuantum = 0x1p-22f;
// For losses, in nats: exact for terms below 4 and sums below 16.
inline constexpr float kLossQuantum = 0x1p-20f;

inline constexpr int64_t kMostSlices = 128;

// How many samples of a batch make a slice: multiples of 128, which is how many the model computes at once. More ranks
// than slices have nothing to do.
inline constexpr int64_t SliceSize(int64_t batch) {
  constexpr int64_t kUnit = 128;
  return std::max<int64_t>((batch + kUnit * kMostSlices - 1) / (kUnit * kMostSlices), 1) * kUnit;
}

// The multiple of `quantum` (a power of two) nearest to x, if |x| < 2^22 quanta; a larger x is rounded less well.
// In a number of this size the last bit of the significand is worth a quantum: adding it rounds.
inline float RoundTo(float quantum, float x) {
  const float anchor = 0x1.8p23f * quantum;
  return (x + anchor) - anchor;
}

inline void AddRounded(std::span<const float> terms, std::span<float> sum) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += RoundTo(kGradientQuantum, terms[i]);
}

}  // namespace char_lm
