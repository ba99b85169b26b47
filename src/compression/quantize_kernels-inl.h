// Quantisation, compiled once for every SIMD target (Highway's foreach_target); no include guard in the usual sense.
// The loops are plain: within these namespaces the compiler vectorises them for the target, and since this folder is
// compiled without contraction, all targets give the same bits.

#if defined(GYRE_COMPRESSION_QUANTIZE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GYRE_COMPRESSION_QUANTIZE_KERNELS_INL_H_
#undef GYRE_COMPRESSION_QUANTIZE_KERNELS_INL_H_
#else
#define GYRE_COMPRESSION_QUANTIZE_KERNELS_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "compression/payload.h"
#include "compression/quantize.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gyre::compression::HWY_NAMESPACE {

constexpr int kBlock = static_cast<int>(kQuantizeBlock);
constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kMostBits = 0x7b800000u;  // 2^120: a block's 256 magnitudes below it have a finite sum
constexpr float kRounder = 0x1.8p23f;        // added and taken away again, it rounds to nearest even

HWY_INLINE uint32_t Bits(float value) {
  return std::bit_cast<uint32_t>(value);
}
HWY_INLINE float FromBits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
HWY_INLINE float Magnitude(float value) {
  return FromBits(Bits(value) & 0x7fffffffu);
}

// A block's elements, padded with zeros.
struct Block {
  alignas(64) float values[kBlock];
  alignas(64) int32_t codes[kBlock];  // what is sent of each
  alignas(64) float decoded[kBlock];  // what receivers make of it, divided by the scale
  int count;
};

// Codecs: how a block becomes codes and decoded values for a scale, and codes bytes.

// kLevels on each side of zero.
template <int kLevels>
struct Integers {
  static HWY_INLINE float Scale(float largest, float /*mean*/) { return largest / kLevels; }
  static HWY_INLINE void Encode(Block& b, float scale, uint64_t /*seed*/) {
    const float inverse = 1.0f / scale;
    for (int i = 0; i < kBlock; ++i) {
      float code = (b.values[i] * inverse + kRounder) - kRounder;
      code = code > kLevels ? kLevels : code;
      code = code < -kLevels ? -kLevels : code;
      b.codes[i] = static_cast<int32_t>(code);
      b.decoded[i] = code;
    }
  }
};

struct Int8Codec : Integers<127> {
  static constexpr int kBits = 8;
  static HWY_INLINE float Decode(uint32_t code) { return static_cast<float>(static_cast<int8_t>(code)); }
};

// Codes are in two's complement.
struct Int4Codec : Integers<7> {
  static constexpr int kBits = 4;
  static HWY_INLINE float Decode(uint32_t code) { return static_cast<float>(static_cast<int32_t>(code ^ 8u) - 8); }
};

// Sign, exponent and kSignificand bits; kBias as in IEEE 754, but without infinities.
template <int kSignificand, int kBias, int kMaxCode>
struct Fp8Codec {
  static constexpr int kBits = 8;
  static HWY_INLINE float Decode(uint32_t code) {
    constexpr float kUnbias = FromBitsConstant(127 - kBias);
    const float magnitude = FromBits((code & 0x7fu) << (23 - kSignificand)) * kUnbias;
    return FromBits(Bits(magnitude) | (code & 0x80u) << 24);
  }
  static HWY_INLINE float Scale(float largest, float /*mean*/) { return largest / Largest(); }
  static HWY_INLINE void Encode(Block& b, float scale, uint64_t /*seed*/) {
    constexpr int kLeastExponent = 1 - kBias;
    const float inverse = 1.0f / scale;
    for (int i = 0; i < kBlock; ++i) {
      const float scaled = b.values[i] * inverse;
      const float magnitude = Magnitude(scaled);
      int exponent = static_cast<int>(Bits(magnitude) >> 23) - 127;
      exponent = exponent < kLeastExponent ? kLeastExponent : exponent;
      // In units of the last place, below 2^(kSignificand + 1); one too many carries into the exponent, rightly.
      const float units = magnitude * FromBits(static_cast<uint32_t>(127 + kSignificand - exponent) << 23);
      const auto rounded = static_cast<int32_t>((units + kRounder) - kRounder);
      int32_t code = ((exponent - kLeastExponent) << kSignificand) + rounded;
      code = code > kMaxCode ? kMaxCode : code;
      code |= static_cast<int32_t>(Bits(scaled) >> 24 & 0x80u);
      b.codes[i] = code;
      b.decoded[i] = Decode(static_cast<uint32_t>(code));
    }
  }

 private:
  static constexpr float FromBitsConstant(int exponent) {
    return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
  }
  static HWY_INLINE float Largest() { return Decode(kMaxCode); }
};
using E4M3Codec = Fp8Codec<3, 7, 0x7e>;
using E5M2Codec = Fp8Codec<2, 15, 0x7b>;

struct SignCodec {
  static constexpr int kBits = 1;
  static HWY_INLINE float Decode(uint32_t code) { return 1.0f - 2.0f * static_cast<float>(static_cast<int32_t>(code)); }
  static HWY_INLINE float Scale(float /*largest*/, float mean) { return mean; }
  static HWY_INLINE void Encode(Block& b, float /*scale*/, uint64_t /*seed*/) {
    for (int i = 0; i < kBlock; ++i) {
      b.codes[i] = static_cast<int32_t>(Bits(b.values[i]) >> 31);
      b.decoded[i] = Decode(static_cast<uint32_t>(b.codes[i]));
    }
  }
};

struct TernaryCodec {
  static constexpr int kBits = 2;
  // 0: 0, 1: 1, 2: -1, 3: 0
  static HWY_INLINE float Decode(uint32_t code) {
    return static_cast<float>(static_cast<int32_t>(code & 1u) - static_cast<int32_t>(code >> 1));
  }
  static HWY_INLINE float Scale(float largest, float /*mean*/) { return largest; }
  static HWY_INLINE void Encode(Block& b, float scale, uint64_t seed) {
    const float inverse = 0x1p24f / scale;
    const auto low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
    for (int i = 0; i < kBlock; ++i) {
      uint32_t lot = (low + static_cast<uint32_t>(i) * 0x9e3779b9u) ^ high;  // mixed as in lowbias32 (C. Wellons, 2018)
      lot = (lot ^ lot >> 16) * 0x7feb352du;
      lot = (lot ^ lot >> 15) * 0x846ca68bu;
      lot ^= lot >> 16;
      const bool chosen = static_cast<float>(static_cast<int32_t>(lot >> 8)) < Magnitude(b.values[i]) * inverse;
      b.codes[i] = chosen ? 1 + static_cast<int32_t>(Bits(b.values[i]) >> 31) : 0;
      b.decoded[i] = Decode(static_cast<uint32_t>(b.codes[i]));
    }
  }
};

template <int kBits>
HWY_INLINE int CodeBytes(int count) {
  return (count * kBits + 7) / 8;
}

template <int kBits>
HWY_INLINE void PackCodes(const Block& b, std::byte* out) {
  constexpr int kEach = 8 / kBits, kBytes = kBlock / kEach;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  alignas(64) uint8_t packed[kBytes];
  for (int i = 0; i < kBytes; ++i) {
    uint32_t byte = 0;
    for (int k = 0; k < kEach; ++k) byte |= (static_cast<uint32_t>(b.codes[i * kEach + k]) & kMask) << (k * kBits);
    packed[i] = static_cast<uint8_t>(byte);
  }
  std::memcpy(out, packed, static_cast<size_t>(CodeBytes<kBits>(b.count)));
}

// Adds up what the block has to send. Returns the largest magnitude's bits, and the mean magnitude.
HWY_INLINE uint32_t LoadBlock(const float* gradient, const float* kept, Block& b, float& mean) {
  if (b.count < kBlock) std::memset(b.values, 0, sizeof(b.values));
  const float* first = gradient != nullptr ? gradient : kept;
  std::memcpy(b.values, first, static_cast<size_t>(b.count) * sizeof(float));
  if (kept != nullptr && kept != first) {
    for (int i = 0; i < b.count; ++i) b.values[i] += kept[i];
  }
  uint32_t largest = 0;
  for (int i = 0; i < kBlock; ++i) {
    const uint32_t bits = Bits(b.values[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  constexpr int kParts = 16;  // a fixed order of additions, which vectors of any width can follow
  float parts[kParts] = {};
  for (int i = 0; i < kBlock; i += kParts) {
    for (int k = 0; k < kParts; ++k) parts[k] += Magnitude(b.values[i + k]);
  }
  float sum = 0;
  for (const float part : parts) sum += part;
  mean = sum / static_cast<float>(b.count);
  return largest;
}

// One block: a float scale, then the codes.
template <class Codec>
HWY_INLINE std::byte* QuantizeBlock(const float* gradient, float* kept, uint64_t seed, Block& b, std::byte* out) {
  constexpr float kLeast = 0x1p-96f;  // less is kept rather than sent: its inverse would overflow
  float mean;
  const uint32_t largest = LoadBlock(gradient, kept, b, mean);
  float scale = 0;
  if (largest >= kMostBits) {
    scale = std::numeric_limits<float>::quiet_NaN();
    std::memset(b.codes, 0, sizeof(b.codes));
  } else if (FromBits(largest) < kLeast) {
    std::memset(b.codes, 0, sizeof(b.codes));
    if (kept != nullptr) std::memcpy(kept, b.values, static_cast<size_t>(b.count) * sizeof(float));
  } else {
    scale = Codec::Scale(FromBits(largest), mean);
    Codec::Encode(b, scale, seed);
    if (kept != nullptr) {
      for (int i = 0; i < b.count; ++i) kept[i] = b.values[i] - scale * b.decoded[i];
    }
  }
  Store(out, scale);
  PackCodes<Codec::kBits>(b, out + sizeof(scale));
  return out + sizeof(scale) + CodeBytes<Codec::kBits>(b.count);
}

template <class Codec>
void QuantizeBlocks(const float* gradient, float* kept, int64_t count, uint64_t seed, std::byte* out) {
  Block b;
  for (int64_t i = 0; i < count; i += kBlock) {
    b.count = static_cast<int>(count - i < kBlock ? count - i : kBlock);
    const uint64_t own = (seed + static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15u;
    const auto at = [i](auto* array) { return array == nullptr ? nullptr : array + i; };
    out = QuantizeBlock<Codec>(at(gradient), at(kept), own, b, out);
  }
}

template <class Codec>
void DequantizeBlocks(const std::byte* from, int64_t count, float scale, float* sum) {
  constexpr int kEach = 8 / Codec::kBits, kBytes = kBlock / kEach;
  constexpr uint32_t kMask = (1u << Codec::kBits) - 1;
  alignas(64) uint8_t packed[kBytes] = {};
  alignas(64) float decoded[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int elements = static_cast<int>(count - i < kBlock ? count - i : kBlock);
    const float own = Load<float>(from);
    std::memcpy(packed, from + sizeof(own), static_cast<size_t>(CodeBytes<Codec::kBits>(elements)));
    from += sizeof(own) + static_cast<size_t>(CodeBytes<Codec::kBits>(elements));
    for (int k = 0; k < kBytes; ++k) {
      for (int j = 0; j < kEach; ++j) {
        decoded[k * kEach + j] = Codec::Decode(static_cast<uint32_t>(packed[k]) >> (j * Codec::kBits) & kMask);
      }
    }
    for (int k = 0; k < elements; ++k) sum[i + k] += scale * (own * decoded[k]);
  }
}

// Codecs of one element: 16 bits each. Branches would keep the loops from being vectorised.

struct BF16Codec {
  static HWY_INLINE uint32_t Encode(float value) {
    const uint32_t bits = Bits(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    // Rounding up the largest numbers would make infinity of them; the largest bfloat16 is sent, and the rest kept.
    const bool overflows = (bits & 0x7fffffffu) < kInfinityBits && (rounded & 0x7fffu) == 0x7f80u;
    const bool nan = (bits & 0x7fffffffu) > kInfinityBits;
    const uint32_t finite = overflows ? rounded - 1 : rounded;
    return nan ? (bits >> 16 | 0x40u) : finite;
  }
  static HWY_INLINE float Decode(uint32_t half) { return FromBits(half << 16); }
};

struct F16Codec {
  static HWY_INLINE uint32_t Encode(float value) {
    const uint32_t bits = Bits(value), sign = bits >> 16 & 0x8000u;
    const float magnitude = Magnitude(value);
    const uint32_t magnitude_bits = Bits(magnitude);
    // Subnormal halves have steps of 2^-24: adding 0.5 puts that step at a float's last place, which rounds.
    const uint32_t subnormal = Bits(magnitude + 0.5f) - Bits(0.5f);
    const uint32_t normal = (magnitude_bits - 0x38000000u + 0xfffu + (magnitude_bits >> 13 & 1u)) >> 13;
    uint32_t half = magnitude_bits < 0x38800000u ? subnormal : normal;
    half = magnitude_bits >= 0x477fe000u ? 0x7bffu : half;  // 65504 and more
    half = magnitude_bits == kInfinityBits ? 0x7c00u : half;
    half = magnitude_bits > kInfinityBits ? 0x7e00u : half;
    return sign | half;
  }
  static HWY_INLINE float Decode(uint32_t half) {
    const uint32_t magnitude = half & 0x7fffu;
    const float value = FromBits(magnitude << 13) * 0x1p112f;  // subnormals come out right as well
    const uint32_t bits = magnitude >= 0x7c00u ? (kInfinityBits | magnitude << 13) : Bits(value);
    return FromBits(bits | (half & 0x8000u) << 16);
  }
};

template <class Codec>
void QuantizeHalves(const float* gradient, float* kept, int64_t count, std::byte* out) {
  alignas(64) float values[kBlock];
  alignas(64) uint16_t halves[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int elements = static_cast<int>(count - i < kBlock ? count - i : kBlock);
    const float* first = gradient != nullptr ? gradient : kept;
    std::memcpy(values, first + i, static_cast<size_t>(elements) * sizeof(float));
    if (kept != nullptr && kept != first) {
      for (int k = 0; k < elements; ++k) values[k] += kept[i + k];
    }
    for (int k = 0; k < elements; ++k) halves[k] = static_cast<uint16_t>(Codec::Encode(values[k]));
    if (kept != nullptr) {
      for (int k = 0; k < elements; ++k) {
        const float error = values[k] - Codec::Decode(halves[k]);
        kept[i + k] = (Bits(error) & kInfinityBits) == kInfinityBits ? 0.0f : error;
      }
    }
    std::memcpy(out + i * 2, halves, static_cast<size_t>(elements) * sizeof(uint16_t));
  }
}

template <class Codec>
void DequantizeHalves(const std::byte* from, int64_t count, float scale, float* sum) {
  alignas(64) uint16_t halves[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int elements = static_cast<int>(count - i < kBlock ? count - i : kBlock);
    std::memcpy(halves, from + i * 2, static_cast<size_t>(elements) * sizeof(uint16_t));
    for (int k = 0; k < elements; ++k) sum[i + k] += scale * Codec::Decode(halves[k]);
  }
}

inline void DequantizeFloats(const std::byte* from, int64_t count, float scale, float* sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] += scale * Load<float>(from + i * 4);
}

inline void QuantizeHere(PayloadKind kind, const float* gradient, float* kept, int64_t count, uint64_t seed,
                         std::byte* out) {
  switch (kind) {
    case PayloadKind::kF16: return QuantizeHalves<F16Codec>(gradient, kept, count, out);
    case PayloadKind::kBF16: return QuantizeHalves<BF16Codec>(gradient, kept, count, out);
    case PayloadKind::kFp8E4M3: return QuantizeBlocks<E4M3Codec>(gradient, kept, count, seed, out);
    case PayloadKind::kFp8E5M2: return QuantizeBlocks<E5M2Codec>(gradient, kept, count, seed, out);
    case PayloadKind::kInt8: return QuantizeBlocks<Int8Codec>(gradient, kept, count, seed, out);
    case PayloadKind::kInt4: return QuantizeBlocks<Int4Codec>(gradient, kept, count, seed, out);
    case PayloadKind::kSign: return QuantizeBlocks<SignCodec>(gradient, kept, count, seed, out);
    case PayloadKind::kTernary: return QuantizeBlocks<TernaryCodec>(gradient, kept, count, seed, out);
    default: return;
  }
}

inline void DequantizeHere(PayloadKind kind, const std::byte* from, int64_t count, float scale, float* sum) {
  switch (kind) {
    case PayloadKind::kF32: return DequantizeFloats(from, count, scale, sum);
    case PayloadKind::kF16: return DequantizeHalves<F16Codec>(from, count, scale, sum);
    case PayloadKind::kBF16: return DequantizeHalves<BF16Codec>(from, count, scale, sum);
    case PayloadKind::kFp8E4M3: return DequantizeBlocks<E4M3Codec>(from, count, scale, sum);
    case PayloadKind::kFp8E5M2: return DequantizeBlocks<E5M2Codec>(from, count, scale, sum);
    case PayloadKind::kInt8: return DequantizeBlocks<Int8Codec>(from, count, scale, sum);
    case PayloadKind::kInt4: return DequantizeBlocks<Int4Codec>(from, count, scale, sum);
    case PayloadKind::kSign: return DequantizeBlocks<SignCodec>(from, count, scale, sum);
    case PayloadKind::kTernary: return DequantizeBlocks<TernaryCodec>(from, count, scale, sum);
    default: return;
  }
}

}  // namespace gyre::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
