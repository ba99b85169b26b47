// Inputs of random calls, such that what comes of them shows who took part.
#pragma once

#include <cstdint>
#include <random>

#include "collectives/hierarchical/expected.h"
#include "gyre/tensor.h"

namespace gyre {

class RandomValues {
 public:
  // Of any bytes, to be moved about.
  explicit RandomValues(uint64_t seed) : seed_(seed) {}

  // To be reduced over `ranks` ranks, so that no order of doing so overflows a floating-point type, unless it is an
  // average of f16: that need not fit on the way. Drawn for all ranks: whether they are small whole numbers times
  // a power of two, whose sums are exact, or use the whole precision; and that power.
  RandomValues(std::mt19937_64& random, DType dtype, ReduceOp op, int ranks);

  void Fill(TensorView view, int rank) const;

 private:
  void FillBooleans(TensorView view, std::mt19937_64& random) const;
  void FillIntegers(TensorView view, std::mt19937_64& random) const;
  void FillFactors(TensorView view, int rank, std::mt19937_64& random) const;
  void FillNumbers(TensorView view, std::mt19937_64& random) const;

  uint64_t seed_;
  bool reduced_ = false;
  ReduceOp op_ = ReduceOp::kSum;
  int ranks_ = 1;
  bool simple_ = false;  // small integers; floating-point numbers of few digits
  int64_t most_ = 0;     // of the whole numbers that simple ones are multiples of
  int exponent_ = 0;     // of the power of two that all are multiplied with
};

}  // namespace gyre
