#include "runtime/sparse_encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "compression/dgc.h"
#include "compression/split_sum.h"

namespace gyre::internal {

namespace {

using compression::DgcTensor;
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

SparseEncoder::SparseEncoder(const Compression& compression, const ExchangeSettings& settings, const HostPieces& pieces,
                             std::vector<std::unique_ptr<compression::Codec>> codecs)
    : settings_(settings),
      pieces_(pieces),
      codecs_(std::move(codecs)),
      plain_kind_(PlainKind(ValuesOf(compression))),
      may_split_(SplitsSums(compression, pieces.hosts(), settings.most_gathered)) {
  if (const auto* const dgc = std::get_if<Dgc>(&compression)) dgc_ = *dgc;
  if (const auto* const top = std::get_if<TopK>(&compression)) sparsity_ = top->sparsity;
  for (const ExchangeTensor& tensor : settings.tensors) {
    const bool keeps = !tensor.covered && plain_kind_ != PayloadKind::kF32;
    kept_.emplace_back(keeps ? pieces.Of(tensor.count, pieces.local(settings.rank)).count : 0);
  }
}

void SparseEncoder::BeginStep(int64_t step, double norm) {
  step_ = step;
  if (!dgc_) return;
  clip_scale_ = compression::ClipScale(*dgc_, norm, settings_.ranks);
  sparsity_ = compression::SparsityAt(*dgc_, step - 1);
  if (InWarmup() && Loses(1 - sparsity_)) sparsity_ = 0;
  for (const auto& codec : codecs_) {
    if (codec != nullptr) static_cast<DgcTensor&>(*codec).Set(sparsity_, clip_scale_);
  }
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

absl::Status SparseEncoder::Flush(int tensor, std::span<float> values) {
  compression::Codec& codec = *codecs_[static_cast<size_t>(tensor)];
  if (!dgc_) {
    const std::span<float> kept = codec.state()[0];
    for (size_t i = 0; i < kept.size(); ++i) {
      values[i] += kept[i];
      kept[i] = 0;
    }
    return absl::OkStatus();
  }
  auto& accumulator = static_cast<DgcTensor&>(codec);
  accumulator.Set(0, clip_scale_);
  RETURN_IF_ERROR(Annotate(accumulator.EncodeAndClear(values, step_, payload_), NameOf(tensor)));
  accumulator.Set(sparsity_, clip_scale_);
  return decoder_.DecodeAdd(payload_, 1, values);
}

bool SparseEncoder::EncodeNext(SparseEncoding& to) {
  if (!to.status.ok() || to.done == to.part.tensors.size()) return false;
  const int tensor = to.part.tensors[to.done];
  const std::span<float> values = to.part.values[to.done];
  const std::span<float> own = pieces_.Of(std::ssize(values), pieces_.local(settings_.rank)).of(values);
  if (goes_plain(to.part, to.done)) {
    if (!pieces_.reduces()) to.plain.insert(to.plain.end(), values.begin(), values.end());
    const auto piece = std::span(to.plain).subspan(to.flushed, own.size());
    if (codecs_[static_cast<size_t>(tensor)] != nullptr) to.status = Flush(tensor, piece);
    to.flushed += own.size();
    if (KindOf(to.part) != PayloadKind::kF32) {
      const auto kept = kept_[static_cast<size_t>(tensor)].span();
      to.kept.insert(to.kept.end(), kept.begin(), kept.end());
    }
  } else {
    if (!own.empty()) to.status = EncodePayload(tensor, own, to);
    std::fill(values.data(), own.data(), 0.0f);  // what others answer for
    std::fill(own.data() + own.size(), values.data() + values.size(), 0.0f);
  }
  ++to.done;
  return to.status.ok();
}

absl::Status SparseEncoder::EncodePayload(int tensor, std::span<float> values, SparseEncoding& to) {
  compression::Codec& codec = *codecs_[static_cast<size_t>(tensor)];
  RETURN_IF_ERROR(Annotate(codec.EncodeAndClear(values, step_, payload_), NameOf(tensor)));
  const size_t at = to.payloads.size();
  to.payloads.resize(at + sizeof(SparseEncoding::Length) + payload_.size());
  compression::Store(&to.payloads[at], static_cast<SparseEncoding::Length>(payload_.size()));
  std::memcpy(&to.payloads[at + sizeof(SparseEncoding::Length)], payload_.data(), payload_.size());
  if (dgc_ && dgc_->global) {
    const auto momenta = static_cast<DgcTensor&>(codec).momenta();
    to.momenta.insert(to.momenta.end(), momenta.begin(), momenta.end());
  }
  return absl::OkStatus();
}

int64_t SparseEncoder::Wanted(int tensor) const {
  return compression::KeptCount(sparsity_, settings_.tensors[static_cast<size_t>(tensor)].count);
}

// Where a whole entry comes back, u is as if it had never been chosen.
void SparseEncoder::TakeBack(const SparseEncoding& from, std::span<const SparseSplit::Returned> returned) {
  std::vector<compression::StateArrays> kept;  // by covered gradient
  for (size_t i = 0; i < from.part.tensors.size(); ++i) {
    if (!goes_plain(from.part, i)) kept.push_back(ArraysOf(from.part.tensors[i]));
  }
  for (const SparseSplit::Returned& each : returned) {
    const auto& arrays = kept[each.tensor];
    arrays.back()[each.element] += each.value;
    if (each.entry < from.momenta.size()) arrays.front()[each.element] = from.momenta[each.entry];
  }
}

std::vector<int64_t> SparseEncoder::PlainTotals(const ExchangePart& part) const {
  std::vector<int64_t> totals;
  for (int piece = 0; piece < pieces_.pieces(); ++piece) {
    int64_t& total = totals.emplace_back(0);
    ForEachPlain(part, piece, [&](size_t, std::span<float> values) { total += std::ssize(values); });
  }
  return totals;
}

compression::StateArrays SparseEncoder::ArraysOf(int tensor) {
  const auto i = static_cast<size_t>(tensor);
  if (codecs_[i] != nullptr) return codecs_[i]->state();
  if (plain_kind_ == PayloadKind::kF32) return {};
  return {kept_[i].span()};
}

std::vector<compression::StateArrays> SparseEncoder::state() {
  std::vector<compression::StateArrays> all;
  for (size_t i = 0; i < codecs_.size(); ++i) {
    auto arrays = ArraysOf(static_cast<int>(i));
    if (!arrays.empty()) all.push_back(std::move(arrays));
  }
  return all;
}

}  // namespace gyre::internal
