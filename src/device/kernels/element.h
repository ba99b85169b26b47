// Elements as the kernels of compression compute with them. The arithmetic is that of src/compression on the CPU,
// operation by operation, each rounded on its own: sources that include this are compiled without fused multiply-adds.
#pragma once

#include <bit>
#include <cstdint>

#include "device/kernels/team.h"

namespace gyre::device::kernels {

constexpr uint32_t kInfinityBits = 0x7f800000u;

GYRE_GPU inline uint32_t Bits(float value) {
  return std::bit_cast<uint32_t>(value);
}
GYRE_GPU inline float FromBits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
GYRE_GPU inline float Magnitude(float value) {
  return FromBits(Bits(value) & 0x7fffffffu);
}

// The magnitude's bits: their order is that of magnitudes, NaN above infinity.
GYRE_GPU inline uint32_t Key(float value) {
  return Bits(value) & 0x7fffffffu;
}

// How gradients are stored, and payloads of whole elements.
struct FloatElement {
  using Stored = float;
  static GYRE_GPU float Load(Stored stored) { return stored; }
  static GYRE_GPU Stored Store(float value) { return value; }
};

// What would round to infinity becomes the largest number instead.
struct BrainElement {
  using Stored = uint16_t;
  static GYRE_GPU float Load(Stored stored) { return FromBits(uint32_t{stored} << 16); }
  static GYRE_GPU Stored Store(float value) {
    const uint32_t bits = Bits(value), magnitude = bits & 0x7fffffffu;
    if (magnitude > kInfinityBits) return static_cast<Stored>(bits >> 16 | 0x40u);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const bool overflows = magnitude < kInfinityBits && (rounded & 0x7fffu) == 0x7f80u;
    return static_cast<Stored>(overflows ? rounded - 1 : rounded);
  }
};

struct HalfElement {
  using Stored = uint16_t;
  static GYRE_GPU float Load(Stored stored) {
    const uint32_t magnitude = stored & 0x7fffu;
    const float value = FromBits(magnitude << 13) * 0x1p112f;  // subnormals come out right as well
    const uint32_t bits = magnitude >= 0x7c00u ? (kInfinityBits | magnitude << 13) : Bits(value);
    return FromBits(bits | (stored & 0x8000u) << 16);
  }
  static GYRE_GPU Stored Store(float value) {
    const uint32_t bits = Bits(value), sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    // Subnormal halves have steps of 2^-24: adding 0.5 puts that step at a float's last place, which rounds.
    const uint32_t subnormal = Bits(FromBits(magnitude) + 0.5f) - Bits(0.5f);
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x477fe000u ? 0x7bffu : half;  // 65504 and more
    half = magnitude == kInfinityBits ? 0x7c00u : half;
    half = magnitude > kInfinityBits ? 0x7e00u : half;
    return static_cast<Stored>(sign | half);
  }
};

// Elements that one load or store moves, if they begin on a multiple of their size together.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

template <typename T>
GYRE_GPU bool IsAligned(const T* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Moves a pack at once. On a GPU as what is used once: global memory, and the first to leave the caches.
template <typename P>
GYRE_GPU P LoadWhole(const P* from) {
  static_assert(sizeof(P) == 16 || sizeof(P) == 8);
#ifdef __CUDACC__
  if constexpr (sizeof(P) == 16) return std::bit_cast<P>(__ldcs(reinterpret_cast<const uint4*>(from)));
  if constexpr (sizeof(P) == 8) return std::bit_cast<P>(__ldcs(reinterpret_cast<const uint2*>(from)));
#else
  return *from;
#endif
}

template <typename P>
GYRE_GPU void StoreWhole(const P& pack, P* to) {
  static_assert(sizeof(P) == 16 || sizeof(P) == 8);
#ifdef __CUDACC__
  if constexpr (sizeof(P) == 16) __stcs(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(pack));
  if constexpr (sizeof(P) == 8) __stcs(reinterpret_cast<uint2*>(to), std::bit_cast<uint2>(pack));
#else
  *to = pack;
#endif
}

// Elements [i, i + kCount) of an array of `count`; 0 beyond its end. `aligned`: element 0 is, and i a multiple of
// kCount.
template <int kCount, typename T>
GYRE_GPU Pack<T, kCount> LoadPack(const T* data, int64_t i, int64_t count, bool aligned) {
  if (aligned && i + kCount <= count) return LoadWhole(reinterpret_cast<const Pack<T, kCount>*>(data + i));
  Pack<T, kCount> pack;
  for (int k = 0; k < kCount; ++k) pack.at[k] = i + k < count ? data[i + k] : T{};
  return pack;
}

template <int kCount, typename T>
GYRE_GPU void StorePack(const Pack<T, kCount>& pack, T* data, int64_t i, int64_t count, bool aligned) {
  if (aligned && i + kCount <= count) {
    return StoreWhole(pack, reinterpret_cast<Pack<T, kCount>*>(data + i));
  }
  for (int k = 0; k < kCount; ++k) {
    if (i + k < count) data[i + k] = pack.at[k];
  }
}

}  // namespace gyre::device::kernels
