#include "ps/pull_codec.h"

#include <algorithm>
#include <cstring>

#include "compression/dense_codec.h"
#include "compression/quantize.h"
#include "ps/push_codec.h"

namespace gyre::ps {

using compression::PayloadKind;

bool IsForValues(PayloadKind kind) {
  return kind == PayloadKind::kF32 || kind == PayloadKind::kF16 || kind == PayloadKind::kBF16 ||
         kind == PayloadKind::kInt8;
}

const ValueEncoder::Encoded& ValueEncoder::Encode(PayloadKind kind, std::span<const float> values, uint64_t version,
                                                  const MakeFloats& make) {
  if (any_ && version == version_) return encoded_;
  any_ = true;
  version_ = version;
  const auto count = static_cast<int64_t>(values.size());
  const size_t bytes = compression::kPayloadHeaderBytes + static_cast<size_t>(compression::QuantizedBytes(kind, count));
  encoded_.bytes = 0;
  if (WordsOf(bytes) >= values.size()) return encoded_;
  compression::EncodeDense(kind, values, nullptr, 0, payload_);
  payload_.resize(WordsOf(bytes) * sizeof(float));
  // Who was sent the last one may still read it.
  Floats used = encoded_.words.unshared() ? std::move(encoded_.words) : make(WordsOf(bytes));
  encoded_ = {Floats::CopyOf(payload_, std::move(used)), bytes};
  return encoded_;
}

bool DecodeValues(Bytes payload, std::span<float> values) {
  const auto header = compression::LoadHeader(payload);
  const auto count = static_cast<int64_t>(values.size());
  if (!header || !IsForValues(header->kind) || header->detail != 0 || header->count != count) return false;
  const auto bytes = static_cast<size_t>(compression::QuantizedBytes(header->kind, count));
  if (payload.size() != compression::kPayloadHeaderBytes + bytes) return false;
  std::ranges::fill(values, 0.0f);
  compression::DequantizeAdd(header->kind, payload.data() + compression::kPayloadHeaderBytes, count, 1, values.data());
  return true;
}

}  // namespace gyre::ps
