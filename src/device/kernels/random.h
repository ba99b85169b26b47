// What random codecs send (RandomK): a tensor is cut into as many runs of nearly the same length as elements are sent,
// and of each run one is drawn, which follows from a seed. For the loops of src/compression on the CPU and the kernels
// on a GPU.
#pragma once

#include <cstdint>

#include "device/kernels/team.h"

namespace gyre::device::kernels {

// Which elements of one tensor. Plain data: it is passed to kernels as it is.
struct RandomChoice {
  uint64_t seed;
  int64_t chosen;  // 0 <= chosen <= count < 2^32
  int64_t count;   // elements of the tensor
};

// SplitMix64's finalizer (Steele, Lea, Flood 2014).
GYRE_GPU inline uint64_t Mix(uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return bits ^ bits >> 31;
}

// Where the choice's i-th element is. They ascend. REQUIRES: 0 <= i < choice.chosen
GYRE_GPU inline int64_t PositionOf(const RandomChoice& choice, int64_t i) {
  const auto wide = static_cast<uint64_t>(choice.count), part = static_cast<uint64_t>(i);
  const auto parts = static_cast<uint64_t>(choice.chosen);
  const uint64_t begin = wide * part / parts, end = wide * (part + 1) / parts;  // below 2^64: both are below 2^32
  const uint64_t lot = Mix(choice.seed + (part + 1) * 0x9e3779b97f4a7c15u) >> 32;
  return static_cast<int64_t>(begin + (lot * (end - begin) >> 32));
}

// What thread `thread` of `threads` does to move the chosen elements of `values`, which become 0, to `to`.
GYRE_GPU inline void TakeShare(const RandomChoice& choice, float* values, float* to, int64_t thread, int64_t threads) {
  for (int64_t i = thread; i < choice.chosen; i += threads) {
    float& value = values[PositionOf(choice, i)];
    to[i] = value;
    value = 0;
  }
}

// And to add them to a sum, scaled.
GYRE_GPU inline void AddShare(const RandomChoice& choice, const float* from, float scale, float* sum, int64_t thread,
                              int64_t threads) {
  for (int64_t i = thread; i < choice.chosen; i += threads) sum[PositionOf(choice, i)] += scale * from[i];
}

}  // namespace gyre::device::kernels
