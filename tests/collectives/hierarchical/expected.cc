#include "collectives/hierarchical/expected.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "support/fill.h"

namespace gyre {

namespace {

// The lowest bits of `bits`, as many as the integer type has.
int64_t Wrapped(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kU8:
    case DType::kBool: return static_cast<uint8_t>(bits);
    case DType::kI8: return static_cast<int8_t>(bits);
    case DType::kU16: return static_cast<uint16_t>(bits);
    case DType::kI16: return static_cast<int16_t>(bits);
    case DType::kI32: return static_cast<int32_t>(bits);
    default: return static_cast<int64_t>(bits);
  }
}

int64_t ReadInteger(ConstTensorView view, int64_t index) {
  const auto size = static_cast<size_t>(DTypeSize(view.dtype));
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(view.data) + index * DTypeSize(view.dtype), size);  // little-endian
  return Wrapped(view.dtype, bits);
}

// The number's lowest binary digit that is not 0.
int LowestDigit(long double number) {
  int exponent = 0;
  const auto digits = static_cast<uint64_t>(std::ldexp(std::frexp(std::fabs(number), &exponent), 64));
  return exponent - 64 + std::countr_zero(digits);
}

bool IsPowerOfTwo(long double number) {
  return LowestDigit(number) == std::ilogb(number);
}

long double Combine(ReduceOp op, long double a, long double b) {
  switch (op) {
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
    case ReduceOp::kProduct: return a * b;
    default: return a + b;
  }
}

// What combining n numbers may lose, in any order, in a type of that precision.
struct Terms {
  int n = 0;
  int lowest_digit = INT_MAX;    // of all
  bool powers_of_two = true;     // all are
  long double magnitudes = 0.0;  // their sum

  void Add(long double number) {
    ++n;
    if (number == 0) return;
    lowest_digit = std::min(lowest_digit, LowestDigit(number));
    powers_of_two = powers_of_two && IsPowerOfTwo(number);
    magnitudes += std::fabs(number);
  }

  long double LossOf(ReduceOp op, const Precision& precision, long double result) const {
    const long double steps = n * std::ldexp(1.0L, -precision.digits), loss = steps / (1 - steps);
    switch (op) {
      case ReduceOp::kMin:
      case ReduceOp::kMax: return 0;
      case ReduceOp::kProduct: return powers_of_two ? 0 : loss * std::fabs(result);
      default: break;
    }
    // Where all partial sums are multiples of the lowest digit that fit, nothing is rounded.
    const bool exact = n == 0 || magnitudes == 0 || magnitudes <= std::ldexp(1.0L, lowest_digit + precision.digits);
    return exact ? 0 : loss * magnitudes;
  }
};

}  // namespace

bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

Precision PrecisionOf(DType dtype) {
  switch (dtype) {
    case DType::kF16: return {11, -24, 15};
    case DType::kBF16: return {8, -133, 127};
    case DType::kF32: return {24, -149, 127};
    default: return {53, -1074, 1023};
  }
}

Expected Expected::Of(const Reduction& reduction, std::span<const ConstTensorView> inputs, int64_t index) {
  if (IsFloatingPoint(inputs[0].dtype)) return OfNumbers(reduction, inputs, index);
  if (inputs[0].dtype == DType::kBool) return OfBooleans(reduction.op, inputs, index);
  return OfIntegers(reduction.op, inputs, index);
}

Expected Expected::OfIntegers(ReduceOp op, std::span<const ConstTensorView> inputs, int64_t index) {
  int64_t result = ReadInteger(inputs[0], index);
  for (const ConstTensorView& input : inputs.subspan(1)) {
    const int64_t value = ReadInteger(input, index);
    const auto a = static_cast<uint64_t>(result), b = static_cast<uint64_t>(value);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage: result = static_cast<int64_t>(a + b); break;
      case ReduceOp::kProduct: result = static_cast<int64_t>(a * b); break;
      case ReduceOp::kAdasum: break;  // of floating-point numbers only
      case ReduceOp::kMin: result = std::min(result, value); break;
      case ReduceOp::kMax: result = std::max(result, value); break;
    }
  }
  Expected expected;
  expected.integer_ = Wrapped(inputs[0].dtype, static_cast<uint64_t>(result));
  if (op == ReduceOp::kAverage) expected.integer_ /= static_cast<int64_t>(inputs.size());  // towards zero
  return expected;
}

Expected Expected::OfBooleans(ReduceOp op, std::span<const ConstTensorView> inputs, int64_t index) {
  const auto is_true = [index](const ConstTensorView& input) { return ReadInteger(input, index) != 0; };
  const bool conjunction = op == ReduceOp::kMin || op == ReduceOp::kProduct;
  Expected expected;
  expected.integer_ = conjunction ? std::ranges::all_of(inputs, is_true) : std::ranges::any_of(inputs, is_true);
  return expected;
}

// A rank scales its own numbers before they cross hosts: by the prescale, and, where f16 is added up, by the power of
// two in a scale of the result that is below 1. What lies below the smallest number then is lost. The rest of the
// scale comes at the end, rounded itself and rounding twice: to the type of the arithmetic and to that of the result.
Expected Expected::OfNumbers(const Reduction& reduction, std::span<const ConstTensorView> inputs, int64_t index) {
  const DType dtype = inputs[0].dtype;
  const Precision precision = PrecisionOf(dtype);
  const long double half_ulp = std::ldexp(1.0L, -precision.digits), smallest = std::ldexp(1.0L, precision.lowest);
  const bool adds = reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kAverage;
  const auto ranks = static_cast<double>(inputs.size());
  const double scale = reduction.op == ReduceOp::kAverage ? reduction.postscale / ranks : reduction.postscale;
  const bool early = adds && dtype == DType::kF16 && std::fabs(scale) < 1;
  const double early_scale = early ? std::ldexp(1.0, std::ilogb(scale)) : 1;

  Terms terms;
  long double result = 0;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    const long double number = static_cast<long double>(support::ReadElement(inputs[rank], index)) * reduction.prescale;
    terms.Add(number);
    result = rank == 0 ? number : Combine(reduction.op, result, number);
  }
  const bool flushed = terms.lowest_digit < INT_MAX && terms.lowest_digit + std::ilogb(early_scale) < precision.lowest;

  Expected expected;
  expected.number_ = result * scale;
  expected.distance_ = terms.LossOf(reduction.op, precision, result) * std::fabs(scale);
  const double late_scale = std::fabs(scale / early_scale);
  if (flushed) expected.distance_ += (adds ? ranks : 1) * smallest * late_scale;
  if (!IsPowerOfTwo(late_scale))
    expected.distance_ += 3 * half_ulp * (std::fabs(expected.number_) + expected.distance_);
  if (late_scale != 1) expected.distance_ += smallest;
  return expected;
}

std::string Expected::Wrong(ConstTensorView out, int64_t index) const {
  if (!IsFloatingPoint(out.dtype)) {
    const int64_t got = ReadInteger(out, index);
    return got == integer_ ? "" : absl::StrCat(got, ", not ", integer_);
  }
  const double got = support::ReadElement(out, index);
  if (std::fabs(got - number_) <= distance_) return "";
  return absl::StrCat(got, ", not ", static_cast<double>(number_), " within ", static_cast<double>(distance_));
}

}  // namespace gyre
