#include "step/gradients.h"

#include <array>
#include <cstddef>

namespace gyre::bench {

namespace {

constexpr size_t kPeriod = 61;  // prime: out of step with every stride and alignment

// By position modulo the period. Sums of whole numbers: no rounding, whatever the order.
using Cycle = std::array<float, kPeriod>;

float GradientElement(size_t position, int i, int rank) {
  const size_t phase = position + 7 * static_cast<size_t>(i) + 13 * static_cast<size_t>(rank);
  return static_cast<float>(phase % kPeriod) - 30.0F;
}

}  // namespace

void FillGradient(std::span<float> gradient, int i, int rank) {
  Cycle cycle;
  for (size_t p = 0; p < kPeriod; ++p) cycle[p] = GradientElement(p, i, rank);
  for (size_t p = 0; p < gradient.size(); ++p) gradient[p] = cycle[p % kPeriod];
}

int64_t CountWrongSums(std::span<const float> sums, int i, int ranks) {
  Cycle expected{};
  for (size_t p = 0; p < kPeriod; ++p) {
    for (int rank = 0; rank < ranks; ++rank) expected[p] += GradientElement(p, i, rank);
  }
  int64_t wrong = 0;
  for (size_t p = 0; p < sums.size(); ++p) wrong += sums[p] == expected[p % kPeriod] ? 0 : 1;
  return wrong;
}

}  // namespace gyre::bench
