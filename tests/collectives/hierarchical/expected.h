// What reductions give by definition, computed apart from the library, and how far rounding may take a result from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gyre/tensor.h"

namespace gyre {

struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1, postscale = 1;  // each a power of two, or its negative
};

bool IsFloatingPoint(DType dtype);

// How a floating-point dtype rounds. Its values are multiples of 2^lowest, smaller than 2^(highest + 1), and have
// `digits` binary digits.
struct Precision {
  int digits;
  int lowest;
  int highest;
};
Precision PrecisionOf(DType dtype);

// An element of a result. Integers and booleans wrap and are exact.
class Expected {
 public:
  // `inputs`: by rank, every rank on a host of its own.
  static Expected Of(const Reduction& reduction, std::span<const ConstTensorView> inputs, int64_t index);

  // What is wrong with the element; empty if nothing.
  std::string Wrong(ConstTensorView out, int64_t index) const;

 private:
  static Expected OfIntegers(ReduceOp op, std::span<const ConstTensorView> inputs, int64_t index);
  static Expected OfBooleans(ReduceOp op, std::span<const ConstTensorView> inputs, int64_t index);
  static Expected OfNumbers(const Reduction& reduction, std::span<const ConstTensorView> inputs, int64_t index);

  int64_t integer_ = 0;       // of integers and booleans
  long double number_ = 0;    // of the others
  long double distance_ = 0;  // how far from it a result may be
};

}  // namespace gyre
