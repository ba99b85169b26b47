#include "runtime/sparse_encoder.h"

#include <algorithm>
#include <utility>

#include "compression/codec.h"
#include "compression/dgc.h"
#include "compression/split_sum.h"

namespace gyre::internal {

namespace {

using compression::PayloadKind;

// Bytes that an entry of a sparse payload takes, and an element of a dense allreduce (twice over the wire).
constexpr double kEntryBytes = 6, kDenseBytes = 8;

PayloadKind PlainKind(ValueType values) {
  switch (values) {
    case ValueType::kF16: return PayloadKind::kF16;
    case ValueType::kBF16: return PayloadKind::kBF16;
    default: return PayloadKind::kF32;
  }
}

}  // namespace

ValueType ValuesOf(const Compression& compression) {
  if (const auto* const dgc = std::get_if<Dgc>(&compression)) return dgc->values;
  if (const auto* const top = std::get_if<TopK>(&compression)) return top->values;
  return ValueType::kF32;
}

SparseEncoder::SparseEncoder(const Compression& compression, const ExchangeSettings& settings, const HostPieces& pieces)
    : settings_(settings),
      pieces_(pieces),
      plain_kind_(PlainKind(ValuesOf(compression))),
      may_split_(SplitsSums(compression, pieces.hosts(), settings.most_gathered)) {
  if (const auto* const dgc = std::get_if<Dgc>(&compression)) dgc_ = *dgc;
  if (const auto* const top = std::get_if<TopK>(&compression)) sparsity_ = top->sparsity;
  if (const auto* const random = std::get_if<RandomK>(&compression)) sparsity_ = random->sparsity;
}

void SparseEncoder::BeginStep(int64_t step, double norm) {
  step_ = step;
  if (!dgc_) return;
  clip_scale_ = compression::ClipScale(*dgc_, norm, settings_.ranks);
  sparsity_ = compression::SparsityAt(*dgc_, step - 1);
  if (InWarmup() && Loses(1 - sparsity_)) sparsity_ = 0;
}

bool SparseEncoder::InWarmup() const {
  return dgc_->warmup_steps > 0 && (step_ - 1) / dgc_->warmup_steps < std::ssize(dgc_->warmup);
}

// Whether more is received than by a dense allreduce.
bool SparseEncoder::Loses(double density) const {
  const double gathered = dgc_->global ? 2 * density
                          : may_split_ ? density + compression::UnionDensity(density, pieces_.hosts())
                                       : pieces_.hosts() * density;
  return gathered * kEntryBytes >= kDenseBytes;
}

double SparseEncoder::LeastSparsity() const {
  if (!dgc_) return sparsity_;
  double least = dgc_->sparsity > 0 ? dgc_->sparsity : 1;
  if (dgc_->warmup_steps == 0) return least;
  for (const double sparsity : dgc_->warmup) {
    if (sparsity > 0 && !Loses(1 - sparsity)) least = std::min(least, sparsity);
  }
  return least;
}

int64_t SparseEncoder::Wanted(int tensor) const {
  return compression::KeptCount(sparsity_, settings_.tensors[static_cast<size_t>(tensor)].count);
}

std::vector<int64_t> SparseEncoder::PlainTotals(const ExchangePart& part) const {
  std::vector<int64_t> totals;
  for (int piece = 0; piece < pieces_.pieces(); ++piece) {
    int64_t& total = totals.emplace_back(0);
    ForEachPlain(part, piece, [&](size_t, std::span<float> values) { total += std::ssize(values); });
  }
  return totals;
}

std::vector<compression::StateArrays> SparseEncoder::state() {
  std::vector<compression::StateArrays> all;
  for (size_t i = 0; i < settings_.tensors.size(); ++i) {
    auto arrays = ArraysOf(static_cast<int>(i));
    if (!arrays.empty()) all.push_back(std::move(arrays));
  }
  return all;
}

}  // namespace gyre::internal
