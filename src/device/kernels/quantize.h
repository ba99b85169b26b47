// Dense payloads: every element in fewer bits, in the format of docs/wire_format.md and with the bits that
// src/compression/quantize_kernels-inl.h gives: the reasons for each step stand there. A warp treats 256 elements,
// which share a scale; each thread 8 that lie together, whose codes are whole bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "device/kernels/element.h"
#include "device/kernels/team.h"

namespace gyre::device::kernels {

constexpr int kBlock = 256;                  // elements that share a scale
constexpr int kOwn = kBlock / kWarp;         // of them, a thread's
constexpr uint32_t kMostBits = 0x7b800000u;  // 2^120
constexpr float kRounder = 0x1.8p23f;        // added and taken away again, it rounds to nearest even

struct Quantization {
  const float* gradient;  // one of these may be null: it counts as 0, and stays so
  float* kept;
  int64_t count;
  uint64_t seed;
  std::byte* out;  // aligned to 4 bytes
};

struct Dequantization {
  const std::byte* from;  // aligned to 4 bytes
  float* sum;             // += scale * ...
  int64_t count;
  float scale;
};

// Codecs: the scale of a block, and the code of one element, number i of its block; what receivers make of a code, over
// the scale. `inverse` is what Inverse makes of the scale.

template <int kLevels, int kCodeBits>
struct IntegerCodec {
  static constexpr int kBits = kCodeBits;
  static constexpr bool kNeedsMean = false;
  static GYRE_GPU float Scale(float largest, float /*mean*/) { return largest / kLevels; }
  static GYRE_GPU float Inverse(float scale) { return 1.0f / scale; }
  static GYRE_GPU uint32_t Encode(float value, float inverse, uint64_t /*seed*/, int /*i*/) {
    float code = (value * inverse + kRounder) - kRounder;
    code = code > kLevels ? kLevels : code;
    code = code < -kLevels ? -kLevels : code;
    return static_cast<uint32_t>(static_cast<int32_t>(code)) & ((1u << kBits) - 1);
  }
  static GYRE_GPU float Decode(uint32_t code) {
    constexpr uint32_t kSign = 1u << (kBits - 1);
    return static_cast<float>(static_cast<int32_t>(code ^ kSign) - static_cast<int32_t>(kSign));
  }
};
using Int8Codec = IntegerCodec<127, 8>;
using Int4Codec = IntegerCodec<7, 4>;

template <int kSignificand, int kBias, uint32_t kMaxCode>
struct Fp8Codec {
  static constexpr int kBits = 8;
  static constexpr bool kNeedsMean = false;
  static GYRE_GPU float Decode(uint32_t code) {
    const float unbias = FromBits(static_cast<uint32_t>(127 - kBias + 127) << 23);
    const float magnitude = FromBits((code & 0x7fu) << (23 - kSignificand)) * unbias;
    return FromBits(Bits(magnitude) | (code & 0x80u) << 24);
  }
  static GYRE_GPU float Scale(float largest, float /*mean*/) { return largest / Decode(kMaxCode); }
  static GYRE_GPU float Inverse(float scale) { return 1.0f / scale; }
  static GYRE_GPU uint32_t Encode(float value, float inverse, uint64_t /*seed*/, int /*i*/) {
    constexpr int kLeastExponent = 1 - kBias;
    const float scaled = value * inverse;
    const float magnitude = Magnitude(scaled);
    int exponent = static_cast<int>(Bits(magnitude) >> 23) - 127;
    exponent = exponent < kLeastExponent ? kLeastExponent : exponent;
    const float units = magnitude * FromBits(static_cast<uint32_t>(127 + kSignificand - exponent) << 23);
    const auto rounded = static_cast<int32_t>((units + kRounder) - kRounder);
    auto code = static_cast<uint32_t>(((exponent - kLeastExponent) << kSignificand) + rounded);
    code = code > kMaxCode ? kMaxCode : code;
    return code | (Bits(scaled) >> 24 & 0x80u);
  }
};
using E4M3Codec = Fp8Codec<3, 7, 0x7e>;
using E5M2Codec = Fp8Codec<2, 15, 0x7b>;

struct SignCodec {
  static constexpr int kBits = 1;
  static constexpr bool kNeedsMean = true;
  static GYRE_GPU float Scale(float /*largest*/, float mean) { return mean; }
  static GYRE_GPU float Inverse(float /*scale*/) { return 0; }
  static GYRE_GPU uint32_t Encode(float value, float /*inverse*/, uint64_t /*seed*/, int /*i*/) {
    return Bits(value) >> 31;
  }
  static GYRE_GPU float Decode(uint32_t code) { return 1.0f - 2.0f * static_cast<float>(static_cast<int32_t>(code)); }
};

struct TernaryCodec {
  static constexpr int kBits = 2;
  static constexpr bool kNeedsMean = false;
  static GYRE_GPU float Scale(float largest, float /*mean*/) { return largest; }
  static GYRE_GPU float Inverse(float scale) { return 0x1p24f / scale; }
  static GYRE_GPU uint32_t Encode(float value, float inverse, uint64_t seed, int i) {
    uint32_t lot = (static_cast<uint32_t>(seed) + static_cast<uint32_t>(i) * 0x9e3779b9u) ^
                   static_cast<uint32_t>(seed >> 32);  // mixed as in lowbias32 (C. Wellons, 2018)
    lot = (lot ^ lot >> 16) * 0x7feb352du;
    lot = (lot ^ lot >> 15) * 0x846ca68bu;
    lot ^= lot >> 16;
    const bool chosen = static_cast<float>(static_cast<int32_t>(lot >> 8)) < Magnitude(value) * inverse;
    return chosen ? 1 + (Bits(value) >> 31) : 0;
  }
  static GYRE_GPU float Decode(uint32_t code) {
    return static_cast<float>(static_cast<int32_t>(code & 1u) - static_cast<int32_t>(code >> 1));
  }
};

// Bytes from one block's scale to the next's.
template <class Codec>
constexpr int64_t kBlockBytes = 4 + kBlock* Codec::kBits / 8;

// A thread's codes, the first in the lowest bits, to byte `at` of `end` of a block's codes.
template <class Codec>
GYRE_GPU void StoreCodes(uint64_t codes, std::byte* to, int at, int end) {
  if (at + Codec::kBits <= end) {
    if constexpr (Codec::kBits == 8) {
      reinterpret_cast<uint32_t*>(to + at)[0] = static_cast<uint32_t>(codes);
      reinterpret_cast<uint32_t*>(to + at)[1] = static_cast<uint32_t>(codes >> 32);
      return;
    } else if constexpr (Codec::kBits == 4) {
      *reinterpret_cast<uint32_t*>(to + at) = static_cast<uint32_t>(codes);
      return;
    } else if constexpr (Codec::kBits == 2) {
      *reinterpret_cast<uint16_t*>(to + at) = static_cast<uint16_t>(codes);
      return;
    }
  }
  for (int b = 0; b < Codec::kBits && at + b < end; ++b) to[at + b] = static_cast<std::byte>(codes >> (8 * b));
}

template <class Codec>
GYRE_GPU uint64_t LoadCodes(const std::byte* from, int at, int end) {
  if (at + Codec::kBits <= end) {
    if constexpr (Codec::kBits == 8) {
      const auto* words = reinterpret_cast<const uint32_t*>(from + at);
      return words[0] | uint64_t{words[1]} << 32;
    } else if constexpr (Codec::kBits == 4) {
      return *reinterpret_cast<const uint32_t*>(from + at);
    } else if constexpr (Codec::kBits == 2) {
      return *reinterpret_cast<const uint16_t*>(from + at);
    }
  }
  uint64_t codes = 0;
  for (int b = 0; b < Codec::kBits && at + b < end; ++b) codes |= static_cast<uint64_t>(from[at + b]) << (8 * b);
  return codes;
}

// What a thread's elements have to send: gradient plus kept.
struct OwnValues {
  Pack<float, 4> at[kOwn / 4];
  GYRE_GPU float& operator[](int i) { return at[i / 4].at[i % 4]; }
};

GYRE_GPU inline void LoadOwn(const Quantization& q, int64_t i, OwnValues& own) {
  const float* const first = q.gradient != nullptr ? q.gradient : q.kept;
  const bool aligned = IsAligned(q.gradient, 16) && IsAligned(q.kept, 16);
  for (int p = 0; p < kOwn / 4; ++p) {
    own.at[p] = LoadPack<4>(first, i + p * 4, q.count, aligned);
    if (q.gradient == nullptr || q.kept == nullptr) continue;
    const auto kept = LoadPack<4>(static_cast<const float*>(q.kept), i + p * 4, q.count, aligned);
    for (int k = 0; k < 4; ++k) own.at[p].at[k] += kept.at[k];
  }
}

GYRE_GPU inline void StoreKept(const Quantization& q, int64_t i, const OwnValues& own) {
  if (q.kept == nullptr) return;
  const bool aligned = IsAligned(q.kept, 16);
  for (int p = 0; p < kOwn / 4; ++p) StorePack(own.at[p], q.kept, i + p * 4, q.count, aligned);
}

struct MeanShared {
  float values[kBlock + kBlock / kWarp];  // with gaps, for shared memory has 32 banks
  float parts[16];
  float mean;
};

// The mean magnitude of `count` values, in the CPU's order: 16 sums, added up one after the other.
template <class Team>
GYRE_GPU float MeanMagnitude(Team& team, Local<Team, OwnValues>& own, int count, MeanShared& shared) {
  constexpr int kParts = 16;
  const auto place = [](int i) { return i + i / kWarp; };
  team.Each([&](int thread) {
    for (int k = 0; k < kOwn; ++k) shared.values[place(thread * kOwn + k)] = Magnitude(own[thread][k]);
  });
  team.Each([&](int thread) {
    if (thread >= kParts) return;
    float part = 0;
    for (int i = thread; i < kBlock; i += kParts) part += shared.values[place(i)];
    shared.parts[thread] = part;
  });
  team.Each([&](int thread) {
    if (thread != 0) return;
    float sum = 0;
    for (const float part : shared.parts) sum += part;
    shared.mean = sum / static_cast<float>(count);
  });
  return shared.mean;
}

// Block `number` of a tensor. A Team of a warp.
template <class Codec, class Team>
GYRE_GPU void QuantizeBlock(Team& team, const Quantization& q, int64_t number, MeanShared& shared) {
  static_assert(Team::kThreads == kWarp);
  constexpr float kLeast = 0x1p-96f;
  const int64_t begin = number * kBlock;
  const int count = q.count - begin < kBlock ? static_cast<int>(q.count - begin) : kBlock;
  Local<Team, OwnValues> own;
  Local<Team, uint32_t> keys;
  team.Do([&](int thread) {
    LoadOwn(q, begin + thread * kOwn, own[thread]);
    uint32_t largest = 0;
    for (int k = 0; k < kOwn; ++k) {
      const uint32_t key = Key(own[thread][k]);
      largest = key > largest ? key : largest;
    }
    keys[thread] = largest;
  });
  const uint32_t largest = team.Largest(keys);
  float mean = 0;
  if constexpr (Codec::kNeedsMean) mean = MeanMagnitude(team, own, count, shared);
  const bool whole = largest < kMostBits, sends = whole && FromBits(largest) >= kLeast;
  const float scale =
      sends ? Codec::Scale(FromBits(largest), mean) : (whole ? 0.0f : std::numeric_limits<float>::quiet_NaN());
  const float inverse = sends ? Codec::Inverse(scale) : 0.0f;
  const uint64_t seed = (q.seed + static_cast<uint64_t>(begin)) * 0x9e3779b97f4a7c15u;
  std::byte* const out = q.out + number * kBlockBytes<Codec>;
  team.Each([&](int thread) {
    uint64_t codes = 0;
    for (int k = 0; sends && k < kOwn; ++k) {
      float& value = own[thread][k];
      const uint32_t code = Codec::Encode(value, inverse, seed, thread * kOwn + k);
      codes |= uint64_t{code} << (k * Codec::kBits);
      value = value - scale * Codec::Decode(code);
    }
    if (thread == 0) *reinterpret_cast<float*>(out) = scale;
    StoreCodes<Codec>(codes, out + 4, thread * Codec::kBits, (count * Codec::kBits + 7) / 8);
    if (whole) StoreKept(q, begin + thread * kOwn, own[thread]);
  });
}

template <class Codec, class Team>
GYRE_GPU void DequantizeBlock(Team& team, const Dequantization& d, int64_t number) {
  static_assert(Team::kThreads == kWarp);
  const int64_t begin = number * kBlock;
  const int count = d.count - begin < kBlock ? static_cast<int>(d.count - begin) : kBlock;
  const std::byte* const from = d.from + number * kBlockBytes<Codec>;
  const bool aligned = IsAligned(d.sum, 16);
  const float own = *reinterpret_cast<const float*>(from);
  team.Do([&](int thread) {
    const uint64_t codes = LoadCodes<Codec>(from + 4, thread * Codec::kBits, (count * Codec::kBits + 7) / 8);
    constexpr uint32_t kMask = (1u << Codec::kBits) - 1;
    for (int p = 0; p < kOwn / 4; ++p) {
      const int64_t i = begin + thread * kOwn + p * 4;
      auto sum = LoadPack<4>(static_cast<const float*>(d.sum), i, d.count, aligned);
      for (int k = 0; k < 4; ++k) {
        const uint32_t code = static_cast<uint32_t>(codes >> ((p * 4 + k) * Codec::kBits)) & kMask;
        sum.at[k] += d.scale * (own * Codec::Decode(code));
      }
      StorePack(sum, d.sum, i, d.count, aligned);
    }
  });
}

// Elements [i, i + 4) of a tensor whose payload has 16 or 32 bits an element: Element's.
template <class Element>
GYRE_GPU void QuantizeFour(const Quantization& q, int64_t i) {
  using Stored = typename Element::Stored;
  const bool aligned = IsAligned(q.gradient, 16) && IsAligned(q.kept, 16);
  auto* const out = reinterpret_cast<Stored*>(q.out);
  auto values = LoadPack<4>(q.gradient != nullptr ? q.gradient : q.kept, i, q.count, aligned);
  if (q.gradient != nullptr && q.kept != nullptr) {
    const auto kept = LoadPack<4>(static_cast<const float*>(q.kept), i, q.count, aligned);
    for (int k = 0; k < 4; ++k) values.at[k] += kept.at[k];
  }
  Pack<Stored, 4> codes;
  for (int k = 0; k < 4; ++k) {
    codes.at[k] = Element::Store(values.at[k]);
    const float error = values.at[k] - Element::Load(codes.at[k]);
    values.at[k] = (Bits(error) & kInfinityBits) == kInfinityBits ? 0.0f : error;
  }
  StorePack(codes, out, i, q.count, IsAligned(out, sizeof(codes)));
  if (q.kept != nullptr) StorePack(values, q.kept, i, q.count, aligned);
}

template <class Element>
GYRE_GPU void DequantizeFour(const Dequantization& d, int64_t i) {
  using Stored = typename Element::Stored;
  const auto* const from = reinterpret_cast<const Stored*>(d.from);
  const bool aligned = IsAligned(d.sum, 16);
  const auto codes = LoadPack<4>(from, i, d.count, IsAligned(from, sizeof(Pack<Stored, 4>)));
  auto sum = LoadPack<4>(static_cast<const float*>(d.sum), i, d.count, aligned);
  for (int k = 0; k < 4; ++k) sum.at[k] += d.scale * Element::Load(codes.at[k]);
  StorePack(sum, d.sum, i, d.count, aligned);
}

// What warp `warp` of `warps` does of a tensor.
template <class Codec, class Team>
GYRE_GPU void QuantizeShare(Team& team, const Quantization& q, int64_t warp, int64_t warps, MeanShared& shared) {
  for (int64_t b = warp; b * kBlock < q.count; b += warps) QuantizeBlock<Codec>(team, q, b, shared);
}

template <class Codec, class Team>
GYRE_GPU void DequantizeShare(Team& team, const Dequantization& d, int64_t warp, int64_t warps) {
  for (int64_t b = warp; b * kBlock < d.count; b += warps) DequantizeBlock<Codec>(team, d, b);
}

// What thread `thread` of `threads` does of one whose payload has 16 or 32 bits an element.
template <class Element>
GYRE_GPU void QuantizeFours(const Quantization& q, int64_t thread, int64_t threads) {
  for (int64_t i = thread; i * 4 < q.count; i += threads) QuantizeFour<Element>(q, i * 4);
}

template <class Element>
GYRE_GPU void DequantizeFours(const Dequantization& d, int64_t thread, int64_t threads) {
  for (int64_t i = thread; i * 4 < d.count; i += threads) DequantizeFour<Element>(d, i * 4);
}

}  // namespace gyre::device::kernels
