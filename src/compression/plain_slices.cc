#include "compression/plain_slices.h"

#include <algorithm>
#include <utility>

#include "compression/quantize.h"

namespace gyre::compression {

void PlainSlices::Begin(PayloadKind kind, std::vector<float> elements, std::vector<float> kept) {
  kind_ = kind;
  elements_ = std::move(elements);
  kept_ = std::move(kept);
  sum_.assign(static_cast<size_t>(count(rank_)), 0.0f);
}

int64_t PlainSlices::bytes(int slice) const {
  return QuantizedBytes(kind_, count(slice));
}

void PlainSlices::Encode(int slice, std::byte* out) {
  float* const kept = kept_.empty() ? nullptr : kept_.data() + begin(slice);
  Quantize(kind_, elements_.data() + begin(slice), kept, count(slice), 0, out);
}

void PlainSlices::Add(const std::byte* from) {
  DequantizeAdd(kind_, from, count(rank_), scale_, sum_.data());
}

void PlainSlices::EncodeSum(std::byte* out) {
  if (kept_.empty() || scale_ == 0) return Quantize(kind_, sum_.data(), nullptr, count(rank_), 0, out);
  error_.assign(sum_.size(), 0.0f);
  Quantize(kind_, sum_.data(), error_.data(), count(rank_), 0, out);
  for (size_t i = 0; i < error_.size(); ++i) kept_[begin(rank_) + i] += error_[i] / scale_;
}

void PlainSlices::Decode(int slice, const std::byte* from) {
  float* const to = elements_.data() + begin(slice);
  std::fill_n(to, count(slice), 0.0f);
  DequantizeAdd(kind_, from, count(slice), 1, to);
}

}  // namespace gyre::compression
