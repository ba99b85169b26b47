// Elements as kernels compute with them: how each dtype becomes the type it is computed in, and back; and packets,
// elements that one load or store moves.
#pragma once

#include <cstdint>

#include "cuda_fp16.h"

namespace gyre::device::cuda {

// Computed in itself.
template <typename T>
struct Plain {
  using Stored = T;
  using Wide = T;
  static __device__ Wide Load(Stored stored) { return stored; }
  static __device__ Stored Store(Wide wide) { return wide; }
};

struct Half {
  using Stored = uint16_t;
  using Wide = float;
  static __device__ Wide Load(Stored stored) { return __half2float(__ushort_as_half(stored)); }
  static __device__ Stored Store(Wide wide) { return __half_as_ushort(__float2half_rn(wide)); }
};

// By bits, as on the CPU (device/cpu/reduce_kernels-inl.h), NaNs included.
struct Brain {
  using Stored = uint16_t;
  using Wide = float;
  static __device__ Wide Load(Stored stored) { return __uint_as_float(uint32_t{stored} << 16); }
  static __device__ Stored Store(Wide wide) {
    const uint32_t bits = __float_as_uint(wide);
    const uint32_t upper = bits >> 16;
    if (wide != wide) return static_cast<Stored>(upper | 0x40u);  // rounding could turn a NaN into infinity
    return static_cast<Stored>((bits + 0x7fffu + (upper & 1u)) >> 16);
  }
};

// kCount elements that lie together and begin on a multiple of their size together.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Packet {
  T at[kCount];
};

inline __device__ bool Aligned(const void* pointer, unsigned bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace gyre::device::cuda
