// Test data: deterministic, and different for every seed, rank and element, so that a swapped rank or a shifted
// element cannot go unseen.
#pragma once

#include <cstdint>

#include "gyre/tensor.h"

namespace gyre::support {

// Small values that every dtype holds exactly and whose sums over up to 8 ranks are exact too: multiples of 1/8 in
// [-2, 2) for floating-point types, -8 to 7 for signed integers, 0 to 15 for unsigned ones, 0 or 1 for bool.
double ExactValue(DType dtype, uint64_t seed, int rank, int64_t index);
void FillExact(TensorView view, uint64_t seed, int rank);

// Values that use the whole precision: uniform in [-1, 1) for floating-point types; elsewhere ExactValue.
void FillUniform(TensorView view, uint64_t seed, int rank);

// Element `index` of the view as a double (an i64 beyond 2^53 is rounded), and its inverse.
double ReadElement(ConstTensorView view, int64_t index);
void WriteElement(TensorView view, int64_t index, double value);

}  // namespace gyre::support
