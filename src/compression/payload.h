// What every payload begins with: which codec wrote it, and for how many elements. Formats: docs/wire_format.md.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace gyre::compression {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian, and are read in place");

// The numbers stand on the wire.
enum class PayloadKind : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBF16 = 2,
  kFp8E4M3 = 3,
  kFp8E5M2 = 4,
  kInt8 = 5,
  kInt4 = 6,
  kSign = 7,
  kTernary = 8,
  kSparse = 9,
  kRandom = 10,
};
inline constexpr int kPayloadKindCount = 11;

struct PayloadHeader {
  PayloadKind kind = PayloadKind::kF32;
  uint8_t detail = 0;  // the kind's
  int64_t count = 0;   // elements of the tensor, >= 0
};
inline constexpr size_t kPayloadHeaderBytes = 12;

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void Store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

inline void StoreHeader(std::byte* to, const PayloadHeader& header) {
  Store(to, header.kind);
  Store(to + 1, header.detail);
  Store(to + 2, uint16_t{0});
  Store(to + 4, header.count);
}

// Empty if the bytes are too few, or no header.
inline std::optional<PayloadHeader> LoadHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < kPayloadHeaderBytes || Load<uint16_t>(bytes.data() + 2) != 0) return std::nullopt;
  const auto kind = Load<uint8_t>(bytes.data());
  const auto count = Load<int64_t>(bytes.data() + 4);
  if (kind >= kPayloadKindCount || count < 0) return std::nullopt;
  return PayloadHeader{static_cast<PayloadKind>(kind), Load<uint8_t>(bytes.data() + 1), count};
}

}  // namespace gyre::compression
