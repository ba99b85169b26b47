#include "compression/power_sgd.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::compression {

namespace {

// In a fixed order that vectors can follow.
float Dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kParts = 16;
  float parts[kParts] = {};
  size_t i = 0;
  for (; i + kParts <= a.size(); i += kParts) {
    for (size_t k = 0; k < kParts; ++k) parts[k] += a[i + k] * b[i + k];
  }
  float sum = 0;
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  for (const float part : parts) sum += part;
  return sum;
}

// to += factor * from
void AddScaled(float factor, std::span<const float> from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

std::span<float> Column(std::vector<float>& columns, size_t length, size_t which) {
  return std::span(columns).subspan(which * length, length);
}

}  // namespace

absl::StatusOr<PowerSgdTensor> PowerSgdTensor::Create(const PowerSgd& options, int64_t rows, int64_t columns,
                                                      uint64_t seed) {
  RETURN_IF_ERROR(Validate(options));
  if (rows < 1 || columns < 1) {
    return absl::InvalidArgumentError(absl::StrCat("powersgd: a matrix of ", rows, " x ", columns));
  }
  return PowerSgdTensor(rows, columns, static_cast<int>(std::min<int64_t>({options.rank, rows, columns})), seed);
}

PowerSgdTensor::PowerSgdTensor(int64_t rows, int64_t columns, int rank, uint64_t seed)
    : rows_(static_cast<size_t>(rows)),
      columns_(static_cast<size_t>(columns)),
      rank_(rank),
      matrix_(rows_ * columns_),
      p_(rows_ * static_cast<size_t>(rank)),
      q_(columns_ * static_cast<size_t>(rank)),
      lots_(seed) {
  FillWithLots(q_);
}

std::span<float> PowerSgdTensor::MakeP(std::span<const float> gradient) {
  for (size_t i = 0; i < rows_; ++i) {
    const auto row = std::span(matrix_).subspan(i * columns_, columns_);
    AddScaled(1, gradient.subspan(i * columns_, columns_), row);
    for (size_t r = 0; r < static_cast<size_t>(rank_); ++r) p_[r * rows_ + i] = Dot(row, Column(q_, columns_, r));
  }
  return p_;
}

// A column that depends on those before it, as all do of a matrix of zeros, is replaced by lots, the same on all ranks:
// left as zeros it would stay so for good.
void PowerSgdTensor::Orthonormalize() {
  constexpr float kDependent = 1e-5f;
  for (size_t r = 0; r < static_cast<size_t>(rank_); ++r) {
    const auto column = Column(p_, rows_, r);
    float before = std::sqrt(Dot(column, column));
    Project(r);
    if (!(std::sqrt(Dot(column, column)) > kDependent * before)) {
      FillWithLots(column);
      before = std::sqrt(Dot(column, column));
      Project(r);
    }
    const float length = std::sqrt(Dot(column, column));
    const float inverse = length > kDependent * before ? 1 / length : 0;
    for (float& value : column) value *= inverse;
  }
}

// Takes what column r of P has of those before it.
void PowerSgdTensor::Project(size_t r) {
  const auto column = Column(p_, rows_, r);
  for (size_t other = 0; other < r; ++other) {
    const auto earlier = Column(p_, rows_, other);
    AddScaled(-Dot(column, earlier), earlier, column);
  }
}

// In [-1, 1): SplitMix64 (Steele, Lea, Flood 2014).
void PowerSgdTensor::FillWithLots(std::span<float> values) {
  for (float& value : values) {
    uint64_t bits = lots_ += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    value = static_cast<float>(static_cast<int64_t>(bits ^ bits >> 31) >> 40) * 0x1p-23f;
  }
}

std::span<float> PowerSgdTensor::MakeQ() {
  Orthonormalize();
  std::ranges::fill(q_, 0.0f);
  for (size_t i = 0; i < rows_; ++i) {
    const auto row = std::span(matrix_).subspan(i * columns_, columns_);
    for (size_t r = 0; r < static_cast<size_t>(rank_); ++r) {
      AddScaled(p_[r * rows_ + i], row, Column(q_, columns_, r));
    }
  }
  return q_;
}

void PowerSgdTensor::Finish(std::span<float> out) {
  for (size_t i = 0; i < rows_; ++i) {
    const auto row = out.subspan(i * columns_, columns_);
    std::ranges::fill(row, 0.0f);
    for (size_t r = 0; r < static_cast<size_t>(rank_); ++r) {
      AddScaled(p_[r * rows_ + i], Column(q_, columns_, r), row);
    }
    const auto kept = std::span(matrix_).subspan(i * columns_, columns_);
    AddScaled(-1, row, kept);
    for (float& value : kept) value = std::isfinite(value) ? value : 0;
  }
  // The averaged factor is the same on all ranks, and so are the lots.
  if (!std::ranges::all_of(q_, [](float value) { return std::isfinite(value); })) FillWithLots(q_);
}

}  // namespace gyre::compression
