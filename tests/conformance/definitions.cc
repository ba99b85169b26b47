#include "conformance/definitions.h"

#include <algorithm>
#include <cmath>

#include "support/fill.h"

namespace gyre {

using support::ExactValue;

namespace {

// Integer sums and products wrap.
double Wrapped(DType dtype, double exact) {
  switch (dtype) {
    case DType::kU8: return static_cast<uint8_t>(static_cast<int64_t>(exact));
    case DType::kI8: return static_cast<int8_t>(static_cast<int64_t>(exact));
    case DType::kU16: return static_cast<uint16_t>(static_cast<int64_t>(exact));
    case DType::kI16: return static_cast<int16_t>(static_cast<int64_t>(exact));
    default: return exact;  // of few ranks' values none is too large
  }
}

}  // namespace

double Reduced(ReduceOp op, DType dtype, uint64_t seed, int size, int64_t index) {
  double result = ExactValue(dtype, seed, 0, index);
  for (int r = 1; r < size; ++r) {
    const double value = ExactValue(dtype, seed, r, index);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage: result += value; break;
      case ReduceOp::kMin: result = std::min(result, value); break;
      case ReduceOp::kMax: result = std::max(result, value); break;
      case ReduceOp::kProduct: result *= value; break;
      case ReduceOp::kAdasum: break;  // adasum_test.cc has its own
    }
  }
  const bool floating = dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
  if (dtype == DType::kBool) return result != 0 ? 1 : 0;
  if (op == ReduceOp::kAverage) return floating ? result / size : std::trunc(result / size);
  return Wrapped(dtype, result);
}

double RelativeTolerance(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 1.0 / 1024;
    case DType::kBF16: return 1.0 / 128;
    case DType::kF32: return 1e-6;
    case DType::kF64: return 1e-14;
    default: return 0;
  }
}

}  // namespace gyre
