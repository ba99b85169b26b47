// Arithmetic that gives the same bits on every processor (--portable-arithmetic): BLAS and the C library choose other
// code, with other rounding, for each. Here every operation is rounded on its own (-ffp-contract=off: no fused
// multiply-add) and sums have one order, so that vectors of any length give the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "blas.h"

namespace char_lm {

enum class Instructions { kBaseline, kAvx2, kAvx512 };

// The instruction sets of this processor, the widest last.
std::vector<Instructions> InstructionsHere();

// Matrix products: an element of C is the sum of its terms in their order. Not thread-safe: it holds packed operands.
class PortableProducts {
 public:
  explicit PortableProducts(Instructions instructions = InstructionsHere().back()) : instructions_(instructions) {}

  // As MatrixProduct of blas.h, with beta 0 or 1.
  void Multiply(Transpose transpose_a, Transpose transpose_b, int rows, int columns, int inner, const float* a,
                const float* b, bool add, float* c);

 private:
  const Instructions instructions_;
  std::vector<float> a_, b_;
};

// e^x within 2 units in the last place; of less than -87 that of -87. Polynomial: Cephes.
inline float PortableExp(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer
  x = std::min(std::max(x, -87.0f), 88.0f);
  const float shifted = x * std::numbers::log2e_v<float> + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float sum = 1.9875691500e-4f;
  for (const float term : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    sum = sum * r + term;
  }
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127;
  return (sum * r * r + r + 1.0f) * std::bit_cast<float>(exponent << 23);
}

// The natural logarithm of a positive, finite x: of its significand the series of the area tangent.
inline double PortableLog(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 23; k > 0; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * std::numbers::ln2 + 2 * s * sum;
}

// The cosine of pi t, for t from 0 to 1: as a sine's series.
inline double PortableCosPi(double t) {
  const double x = std::numbers::pi * (0.5 - t), square = x * x;
  double sum = 1;
  for (int k = 20; k > 0; k -= 2) sum = 1 - sum * square / (k * (k + 1));
  return x * sum;
}

}  // namespace char_lm
