#include "collectives/hierarchical/random_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "support/fill.h"

namespace gyre {

namespace {

// In [-1, 1).
double Uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-52 - 1;
}

int Log2RoundedUp(int64_t number) {
  return std::bit_width(static_cast<uint64_t>(number - 1));
}

}  // namespace

RandomValues::RandomValues(std::mt19937_64& random, DType dtype, ReduceOp op, int ranks)
    : seed_(random()), reduced_(true), op_(op), ranks_(ranks), simple_(random() % 2 == 0) {
  if (!IsFloatingPoint(dtype)) return;
  const Precision precision = PrecisionOf(dtype);
  most_ = simple_ ? std::min<int64_t>(16, (int64_t{1} << precision.digits) / ranks) : 1;
  const bool must_fit = !(dtype == DType::kF16 && op == ReduceOp::kAverage);
  const int highest = precision.highest - Log2RoundedUp(must_fit ? most_ * ranks : most_);
  const int draw = static_cast<int>(random() % 4);
  const int span = highest - precision.lowest + 1;
  const int between = precision.lowest + static_cast<int>(random() % static_cast<uint64_t>(span));
  exponent_ = draw == 0 ? precision.lowest : draw == 1 ? highest : between;
}

void RandomValues::Fill(TensorView view, int rank) const {
  std::mt19937_64 random(seed_ + static_cast<uint64_t>(rank));
  if (!reduced_) {
    for (int64_t i = 0; i < view.bytes(); ++i) static_cast<char*>(view.data)[i] = static_cast<char>(random());
  } else if (view.dtype == DType::kBool) {
    FillBooleans(view, random);
  } else if (!IsFloatingPoint(view.dtype)) {
    FillIntegers(view, random);
  } else if (op_ == ReduceOp::kProduct) {
    FillFactors(view, rank, random);
  } else {
    FillNumbers(view, random);
  }
}

// About one rank decides.
void RandomValues::FillBooleans(TensorView view, std::mt19937_64& random) const {
  const bool conjunction = op_ == ReduceOp::kMin || op_ == ReduceOp::kProduct;
  for (int64_t i = 0; i < view.count; ++i) {
    const bool decides = random() % static_cast<uint64_t>(ranks_) == 0;
    support::WriteElement(view, i, decides != conjunction ? 1 : 0);
  }
}

// Factors are odd: others' products would soon be 0, as the type wraps.
void RandomValues::FillIntegers(TensorView view, std::mt19937_64& random) const {
  const auto size = static_cast<size_t>(DTypeSize(view.dtype));
  const bool is_unsigned = view.dtype == DType::kU8 || view.dtype == DType::kU16;
  for (int64_t i = 0; i < view.count; ++i) {
    uint64_t bits = random();
    if (simple_) bits = bits % 16 - (is_unsigned ? 0 : 8);
    if (op_ == ReduceOp::kProduct) bits |= 1;
    std::memcpy(static_cast<char*>(view.data) + i * DTypeSize(view.dtype), &bits, size);  // little-endian
  }
}

// Simple ones are powers of two and signs, others lie around 1; 64 of these leave a float's range neither way. That of
// f16 is only wide enough for 14 ranks' factors other than 1 and -1.
void RandomValues::FillFactors(TensorView view, int rank, std::mt19937_64& random) const {
  const int64_t every = view.dtype == DType::kF16 ? (ranks_ + 13) / 14 : 1;
  for (int64_t i = 0; i < view.count; ++i) {
    double factor = random() % 2 == 0 ? 1 : -1;
    const auto power = static_cast<int>(random() % 3) - 1;
    const double around = 1.125 + 0.375 * Uniform(random);
    if ((i + rank) % every == 0) factor *= simple_ || view.dtype == DType::kF16 ? std::ldexp(1.0, power) : around;
    support::WriteElement(view, i, factor);
  }
}

void RandomValues::FillNumbers(TensorView view, std::mt19937_64& random) const {
  const auto choices = static_cast<uint64_t>(2 * most_ + 1);
  for (int64_t i = 0; i < view.count; ++i) {
    const double number =
        simple_ ? static_cast<double>(random() % choices) - static_cast<double>(most_) : Uniform(random);
    support::WriteElement(view, i, std::ldexp(number, exponent_));
  }
}

}  // namespace gyre
