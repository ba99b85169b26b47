// Gradients for tests of compression.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gyre::support {

// Two gradients that codecs take, of odd sizes, one of which is thin, and two that go along.
inline const std::vector<std::vector<int64_t>> kShapes = {{41, 53}, {1000}, {3, 5, 101}, {7, 3}};

inline int64_t CountOf(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

// Of any size from 0.001 to 1, of either sign, another on each rank and in each step.
inline float GradientOf(int rank, size_t tensor, int64_t element, int64_t step) {
  auto lot =
      static_cast<uint32_t>(rank * 7919 + static_cast<int64_t>(tensor) * 104'729 + element * 31 + step * 15'485'863);
  lot = (lot ^ lot >> 15) * 0x2c1b3c6du;
  lot = (lot ^ lot >> 12) * 0x297a2d39u;
  lot ^= lot >> 15;
  const float size = std::exp2(-static_cast<float>(lot >> 8 & 1023) / 102.4f);
  return (lot & 1) != 0 ? size : -size;
}

}  // namespace gyre::support
