#include "compression/power_sgd.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::compression {

namespace {

using device::kernels::kDotParts;
using device::kernels::kPieceColumns;
using device::kernels::kPieceRows;
using device::kernels::LowRankMatrix;
using device::kernels::LowRankPass;

// In a fixed order that vectors can follow.
float Dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kParts = kDotParts;
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

std::span<float> Column(std::span<float> columns, size_t length, size_t which) {
  return columns.subspan(which * length, length);
}

// A matrix with the sizes of its sides.
struct Sides {
  explicit Sides(const LowRankMatrix& m)
      : rows(static_cast<size_t>(m.rows)),
        columns(static_cast<size_t>(m.columns)),
        rank(static_cast<size_t>(m.rank)),
        p(m.p, rows * rank),
        q(m.q, columns * rank) {}
  std::span<float> RowOf(float* matrix, size_t i) const { return {matrix + i * columns, columns}; }
  std::span<float> PColumn(size_t r) const { return Column(p, rows, r); }
  std::span<float> QColumn(size_t r) const { return Column(q, columns, r); }

  size_t rows, columns, rank;
  std::span<float> p, q;
};

// Piece by piece of both.
float DotOfPieces(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kPiece = kPieceColumns;
  float sum = Dot(a.first(std::min(a.size(), kPiece)), b.first(std::min(b.size(), kPiece)));
  for (size_t begin = kPiece; begin < a.size(); begin += kPiece) {
    const size_t count = std::min(a.size() - begin, kPiece);
    sum += Dot(a.subspan(begin, count), b.subspan(begin, count));
  }
  return sum;
}

void MakeP(const LowRankMatrix& m) {
  const Sides sides(m);
  for (size_t i = 0; i < sides.rows; ++i) {
    const auto row = sides.RowOf(m.matrix, i);
    AddScaled(1, {m.gradient + i * sides.columns, sides.columns}, row);
    for (size_t r = 0; r < sides.rank; ++r) sides.PColumn(r)[i] = DotOfPieces(row, sides.QColumn(r));
  }
}

// The first piece of rows is added up in Q itself.
void MakeQ(const LowRankMatrix& m) {
  constexpr size_t kPiece = kPieceRows;
  const Sides sides(m);
  std::vector<float> another(sides.rows > kPiece ? sides.q.size() : 0);
  for (size_t begin = 0; begin < sides.rows; begin += kPiece) {
    const std::span<float> sums = begin == 0 ? sides.q : std::span(another);
    std::ranges::fill(sums, 0.0f);
    for (size_t i = begin; i < std::min(begin + kPiece, sides.rows); ++i) {
      const auto row = sides.RowOf(m.matrix, i);
      for (size_t r = 0; r < sides.rank; ++r) AddScaled(sides.PColumn(r)[i], row, Column(sums, sides.columns, r));
    }
    if (begin > 0) AddScaled(1, another, sides.q);
  }
}

void Finish(const LowRankMatrix& m) {
  const Sides sides(m);
  const float scale = m.scale;
  for (size_t i = 0; i < sides.rows; ++i) {
    const auto result = sides.RowOf(m.result, i), kept = sides.RowOf(m.matrix, i);
    std::ranges::fill(result, 0.0f);
    for (size_t r = 0; r < sides.rank; ++r) AddScaled(sides.PColumn(r)[i], sides.QColumn(r), result);
    AddScaled(-1, result, kept);
    for (float& value : kept) value = std::isfinite(value) ? value : 0;
    for (float& value : result) value *= scale;
  }
}

}  // namespace

void RunPass(LowRankPass pass, const LowRankMatrix& m) {
  switch (pass) {
    case LowRankPass::kMakeP: return MakeP(m);
    case LowRankPass::kMakeQ: return MakeQ(m);
    case LowRankPass::kFinish: return Finish(m);
  }
}

// --- Factors ---

absl::StatusOr<PowerSgdFactors> PowerSgdFactors::Create(const PowerSgd& options, int64_t rows, int64_t columns,
                                                        uint64_t seed) {
  RETURN_IF_ERROR(Validate(options));
  if (rows < 1 || columns < 1) {
    return absl::InvalidArgumentError(absl::StrCat("powersgd: a matrix of ", rows, " x ", columns));
  }
  return PowerSgdFactors(rows, columns, static_cast<int>(std::min<int64_t>({options.rank, rows, columns})), seed);
}

PowerSgdFactors::PowerSgdFactors(int64_t rows, int64_t columns, int rank, uint64_t seed)
    : rows_(static_cast<size_t>(rows)),
      columns_(static_cast<size_t>(columns)),
      rank_(rank),
      q_(columns_ * static_cast<size_t>(rank)),
      lots_(seed) {
  FillWithLots(q_);
}

// A column that depends on those before it, as all do of a matrix of zeros, is replaced by lots, the same on all ranks:
// left as zeros it would stay so for good.
void PowerSgdFactors::Orthonormalize(std::span<float> p) {
  constexpr float kDependent = 1e-5f;
  for (size_t r = 0; r < static_cast<size_t>(rank_); ++r) {
    const auto column = Column(p, rows_, r);
    float before = std::sqrt(Dot(column, column));
    Project(p, r);
    if (!(std::sqrt(Dot(column, column)) > kDependent * before)) {
      FillWithLots(column);
      before = std::sqrt(Dot(column, column));
      Project(p, r);
    }
    const float length = std::sqrt(Dot(column, column));
    const float inverse = length > kDependent * before ? 1 / length : 0;
    for (float& value : column) value *= inverse;
  }
}

// Takes what column r of P has of those before it.
void PowerSgdFactors::Project(std::span<float> p, size_t r) const {
  const auto column = Column(p, rows_, r);
  for (size_t other = 0; other < r; ++other) {
    const auto earlier = Column(p, rows_, other);
    AddScaled(-Dot(column, earlier), earlier, column);
  }
}

// In [-1, 1): SplitMix64 (Steele, Lea, Flood 2014).
void PowerSgdFactors::FillWithLots(std::span<float> values) {
  for (float& value : values) {
    uint64_t bits = lots_ += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    value = static_cast<float>(static_cast<int64_t>(bits ^ bits >> 31) >> 40) * 0x1p-23f;
  }
}

// The averaged factor is the same on all ranks, and so are the lots.
void PowerSgdFactors::Keep(std::span<const float> averaged) {
  std::ranges::copy(averaged, q_.begin());
  if (!std::ranges::all_of(q_, [](float value) { return std::isfinite(value); })) FillWithLots(q_);
}

void PowerSgdFactors::Restore(std::span<const float> q, uint64_t lots) {
  std::ranges::copy(q, q_.begin());
  lots_ = lots;
}

// --- A matrix ---

absl::StatusOr<PowerSgdTensor> PowerSgdTensor::Create(const PowerSgd& options, int64_t rows, int64_t columns,
                                                      uint64_t seed) {
  ASSIGN_OR_RETURN(auto factors, PowerSgdFactors::Create(options, rows, columns, seed));
  return PowerSgdTensor(std::move(factors));
}

PowerSgdTensor::PowerSgdTensor(PowerSgdFactors factors)
    : factors_(std::move(factors)),
      matrix_(static_cast<size_t>(factors_.rows() * factors_.columns())),
      p_(factors_.p_size()),
      q_(factors_.q().begin(), factors_.q().end()) {}

LowRankMatrix PowerSgdTensor::Whole() {
  return {.gradient = nullptr,
          .result = nullptr,
          .matrix = matrix_.data(),
          .p = p_.data(),
          .q = q_.data(),
          .parts = nullptr,
          .rows = factors_.rows(),
          .columns = factors_.columns(),
          .rank = factors_.rank(),
          .scale = 1};
}

std::span<float> PowerSgdTensor::MakeP(std::span<const float> gradient) {
  std::ranges::copy(factors_.q(), q_.begin());
  LowRankMatrix m = Whole();
  m.gradient = gradient.data();
  RunPass(LowRankPass::kMakeP, m);
  return p_;
}

std::span<float> PowerSgdTensor::MakeQ() {
  factors_.Orthonormalize(p_);
  RunPass(LowRankPass::kMakeQ, Whole());
  return q_;
}

void PowerSgdTensor::Finish(std::span<float> out) {
  LowRankMatrix m = Whole();
  m.result = out.data();
  RunPass(LowRankPass::kFinish, m);
  factors_.Keep(q_);
}

}  // namespace gyre::compression
