#include "compression/sparse.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compression/index_code.h"
#include "compression/payload.h"
#include "gyre/dtype.h"

namespace gyre::compression {

namespace {

// u32 entries, u32 bytes of positions, u8 code, u8 its parameter, i8 exponent of the values' scale, u8 0
constexpr size_t kChunkHeaderBytes = 12;

constexpr size_t ValueBytes(ValueType type) {
  return type == ValueType::kF32 ? 4 : 2;
}

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrCat("sparse payload: ", ToAbsl(what)));
}

// The power of two by which the largest value lies in [2^14, 2^15), of halves the second but largest binade: no value
// becomes infinite by rounding.
int ScaleExponent(ValueType type, std::span<const float> values) {
  if (type != ValueType::kF16) return 0;
  float largest = 0;
  for (const float value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  if (largest == 0) return 0;
  return std::clamp(std::ilogb(largest) - 14, -128, 127);
}

template <typename Half>
void EncodeHalves(std::span<float> values, int exponent, std::byte* out) {
  const float up = std::ldexp(1.0f, exponent);
  for (size_t i = 0; i < values.size(); ++i) {
    const Half half(std::ldexp(values[i], -exponent));
    Store(out + 2 * i, half.bits);
    const float error = values[i] - static_cast<float>(half) * up;
    values[i] = std::isfinite(error) ? error : 0.0f;
  }
}

void EncodeValues(ValueType type, std::span<float> values, int exponent, std::byte* out) {
  switch (type) {
    case ValueType::kF32:
      if (!values.empty()) std::memcpy(out, values.data(), values.size_bytes());
      std::ranges::fill(values, 0.0f);
      return;
    case ValueType::kF16: return EncodeHalves<Float16>(values, exponent, out);
    case ValueType::kBF16: return EncodeHalves<BFloat16>(values, exponent, out);
  }
}

template <typename Half>
void DecodeHalves(const std::byte* from, int exponent, std::span<float> values) {
  const float up = std::ldexp(1.0f, exponent);
  for (size_t i = 0; i < values.size(); ++i) {
    Half half;
    half.bits = Load<uint16_t>(from + 2 * i);
    values[i] = static_cast<float>(half) * up;
  }
}

void DecodeValues(ValueType type, const std::byte* from, int exponent, std::span<float> values) {
  switch (type) {
    case ValueType::kF32:
      if (!values.empty()) std::memcpy(values.data(), from, values.size_bytes());
      return;
    case ValueType::kF16: return DecodeHalves<Float16>(from, exponent, values);
    case ValueType::kBF16: return DecodeHalves<BFloat16>(from, exponent, values);
  }
}

uint32_t RangeAt(int64_t base, int64_t count) {
  return static_cast<uint32_t>(std::min<int64_t>(count - base, kMaxRange));
}

}  // namespace

PayloadKind DenseKindOf(ValueType values) {
  switch (values) {
    case ValueType::kF16: return PayloadKind::kF16;
    case ValueType::kBF16: return PayloadKind::kBF16;
    default: return PayloadKind::kF32;
  }
}

void EncodeSparse(std::span<const uint32_t> indices, std::span<float> values, int64_t count,
                  const SparseOptions& options, std::vector<std::byte>& out) {
  out.resize(kPayloadHeaderBytes);
  StoreHeader(out.data(), {PayloadKind::kSparse, static_cast<uint8_t>(options.values), count});
  std::vector<uint32_t> local;
  size_t done = 0;
  for (int64_t base = 0; base < count; base += kMaxRange) {
    const uint32_t range = RangeAt(base, count);
    const auto from = indices.subspan(done);
    const auto end = std::ranges::lower_bound(from, base + range, {}, [](uint32_t index) { return int64_t{index}; });
    const auto entries = static_cast<size_t>(end - from.begin());
    local.resize(entries);
    for (size_t i = 0; i < entries; ++i) local[i] = from[i] - static_cast<uint32_t>(base);
    const auto chunk = values.subspan(done, entries);
    done += entries;

    const auto length = static_cast<int64_t>(entries);
    const IndexCode code = ChooseIndexCode(length, range, options.link_bytes_per_second);
    const int parameter = IndexParameter(code, length, range);
    const int exponent = ScaleExponent(options.values, chunk);
    const size_t header = out.size();
    out.resize(header + kChunkHeaderBytes);
    EncodeIndices(code, parameter, local, range, out);
    Store(&out[header], static_cast<uint32_t>(entries));
    Store(&out[header + 4], static_cast<uint32_t>(out.size() - header - kChunkHeaderBytes));
    Store(&out[header + 8], code);
    Store(&out[header + 9], static_cast<uint8_t>(parameter));
    Store(&out[header + 10], static_cast<int8_t>(exponent));
    Store(&out[header + 11], uint8_t{0});
    out.resize(out.size() + entries * ValueBytes(options.values));
    EncodeValues(options.values, chunk, exponent, out.data() + out.size() - entries * ValueBytes(options.values));
  }
}

absl::Status SparseDecoder::Decode(std::span<const std::byte> bytes, int64_t count) {
  const auto header = LoadHeader(bytes);
  if (!header || header->kind != PayloadKind::kSparse || header->detail > static_cast<uint8_t>(ValueType::kBF16)) {
    return Damaged("the header is none");
  }
  if (header->count != count) return Damaged(absl::StrCat("of ", header->count, " elements instead of ", count));
  if (count > int64_t{UINT32_MAX}) return Damaged("of too many elements");
  const auto type = static_cast<ValueType>(header->detail);
  auto rest = bytes.subspan(kPayloadHeaderBytes);
  indices_.clear();
  values_.clear();
  // An entry takes as many bytes at least: so all fits from the start, whatever the chunks claim.
  indices_.reserve(rest.size() / ValueBytes(type));
  values_.reserve(rest.size() / ValueBytes(type));
  for (int64_t base = 0; base < count; base += kMaxRange) {
    RETURN_IF_ERROR(DecodeChunk(rest, type, static_cast<uint32_t>(base), RangeAt(base, count)));
  }
  return rest.empty() ? absl::OkStatus() : Damaged("bytes are left over");
}

absl::Status SparseDecoder::DecodeChunk(std::span<const std::byte>& rest, ValueType type, uint32_t base,
                                        uint32_t range) {
  if (rest.size() < kChunkHeaderBytes) return Damaged("cut short");
  const auto entries = size_t{Load<uint32_t>(rest.data())}, index_bytes = size_t{Load<uint32_t>(rest.data() + 4)};
  const auto code = Load<uint8_t>(rest.data() + 8), parameter = Load<uint8_t>(rest.data() + 9);
  const auto exponent = Load<int8_t>(rest.data() + 10);
  const bool scaled = type == ValueType::kF16;
  if (code >= kIndexCodeCount || Load<uint8_t>(rest.data() + 11) != 0 || (!scaled && exponent != 0)) {
    return Damaged("a chunk's header is none");
  }
  rest = rest.subspan(kChunkHeaderBytes);
  if (entries > range || rest.size() < index_bytes + entries * ValueBytes(type)) return Damaged("cut short");
  const size_t done = indices_.size();
  indices_.resize(done + entries);
  values_.resize(done + entries);
  const auto indices = std::span(indices_).subspan(done);
  if (!DecodeIndices(static_cast<IndexCode>(code), parameter, rest.first(index_bytes), range, indices)) {
    return Damaged("positions that are none");
  }
  for (uint32_t& index : indices) index += base;
  DecodeValues(type, rest.data() + index_bytes, exponent, std::span(values_).subspan(done));
  rest = rest.subspan(index_bytes + entries * ValueBytes(type));
  return absl::OkStatus();
}

}  // namespace gyre::compression
