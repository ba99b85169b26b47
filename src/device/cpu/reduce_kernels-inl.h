// Reduction kernels, compiled once for every SIMD target (Highway's foreach_target); no include guard in the usual
// sense. One loop, made of three small parts: how an element type is loaded and stored (Lanes), how two vectors are
// combined (Combine*), and how many sources are unrolled.

#if defined(GYRE_DEVICE_CPU_REDUCE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GYRE_DEVICE_CPU_REDUCE_KERNELS_INL_H_
#undef GYRE_DEVICE_CPU_REDUCE_KERNELS_INL_H_
#else
#define GYRE_DEVICE_CPU_REDUCE_KERNELS_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "gyre/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gyre::device::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Element types that are computed in themselves.
template <typename T>
struct Lanes {
  using Element = T;
  // AVX-512 loads and stores the first lanes of a vector without touching what lies beyond.
  static constexpr bool kMaskedTail = HWY_TARGET <= HWY_AVX3;
  using D = hn::ScalableTag<T>;
  static HWY_INLINE hn::Vec<D> Load(const T* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void Store(hn::Vec<D> v, T* to) { hn::StoreU(v, D(), to); }
};

// bfloat16: the upper half of a float.
struct BFloat16Lanes {
  using Element = uint16_t;
  static constexpr bool kMaskedTail = false;
  using D = hn::ScalableTag<float>;
  using DBits = hn::Rebind<uint32_t, D>;
  using DHalf = hn::Rebind<uint16_t, D>;

  static HWY_INLINE hn::Vec<D> Load(const uint16_t* from) {
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(DBits(), hn::LoadU(DHalf(), from))));
  }

  static HWY_INLINE void Store(hn::Vec<D> v, uint16_t* to) {
    const DBits bits_tag;
    const auto bits = hn::BitCast(bits_tag, v);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(bits_tag, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(bits_tag, 0x7fffu))));
    const auto quiet = hn::Or(upper, hn::Set(bits_tag, 0x40u));  // rounding could turn a NaN into infinity
    const auto is_nan = hn::RebindMask(bits_tag, hn::IsNaN(v));
    const auto result = hn::IfThenElse(is_nan, quiet, rounded);
    hn::StoreU(hn::DemoteTo(DHalf(), hn::BitCast(hn::RebindToSigned<DBits>(), result)), DHalf(), to);
  }
};

// IEEE half. Conversion instructions exist from AVX2 (F16C) on; below that, element by element.
struct Float16Lanes {
  using Element = uint16_t;
  static constexpr bool kMaskedTail = false;
  using D = hn::ScalableTag<float>;
  using DHalf = hn::Rebind<hwy::float16_t, D>;
  using DHalfBits = hn::Rebind<uint16_t, D>;
  static constexpr bool kNative = HWY_TARGET <= HWY_AVX2;

  static HWY_INLINE hn::Vec<D> Load(const uint16_t* from) {
    if constexpr (kNative) {
      return hn::PromoteTo(D(), hn::BitCast(DHalf(), hn::LoadU(DHalfBits(), from)));
    } else {
      HWY_ALIGN float wide[hn::MaxLanes(D())];
      for (size_t i = 0; i < hn::Lanes(D()); ++i) {
        Float16 half;
        std::memcpy(&half.bits, reinterpret_cast<const char*>(from) + 2 * i, 2);
        wide[i] = static_cast<float>(half);
      }
      return hn::Load(D(), wide);
    }
  }

  static HWY_INLINE void Store(hn::Vec<D> v, uint16_t* to) {
    if constexpr (kNative) {
      hn::StoreU(hn::BitCast(DHalfBits(), hn::DemoteTo(DHalf(), v)), DHalfBits(), to);
    } else {
      HWY_ALIGN float wide[hn::MaxLanes(D())];
      hn::Store(v, D(), wide);
      for (size_t i = 0; i < hn::Lanes(D()); ++i) {
        const Float16 half(wide[i]);
        std::memcpy(reinterpret_cast<char*>(to) + 2 * i, &half.bits, 2);
      }
    }
  }
};

struct CombineSum {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Add(a, b);
  }
};
struct CombineMin {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Min(a, b);
  }
};
struct CombineMax {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Max(a, b);
  }
};
struct CombineAnd {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::And(a, b);
  }
};
struct CombineOr {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Or(a, b);
  }
};
struct CombineProduct {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    using D = hn::DFromV<V>;
    using T = hn::TFromD<D>;
    if constexpr (std::is_floating_point_v<T> || sizeof(T) == 2 || sizeof(T) == 4) {
      return hn::Mul(a, b);
    } else {  // no such instruction below AVX-512; integer products of these widths are rare
      HWY_ALIGN T x[hn::MaxLanes(D())], y[hn::MaxLanes(D())];
      hn::Store(a, D(), x);
      hn::Store(b, D(), y);
      using U = std::make_unsigned_t<T>;  // wraps where the signed product would be undefined
      for (size_t i = 0; i < hn::Lanes(D()); ++i) {
        x[i] = static_cast<T>(static_cast<U>(static_cast<U>(x[i]) * static_cast<U>(y[i])));
      }
      return hn::Load(D(), x);
    }
  }
};

struct Operands {
  const void* const* sources;
  int source_count;
  void* const* destinations;
  int destination_count;
  double scale_source;
  double scale_result;
};

// Elements [first, first + lanes) of all sources, combined.
template <class L, class Combine, bool kScaled, int kSources, class LoadAt>
HWY_INLINE auto CombineAt(const Operands& o, hn::Vec<typename L::D> scale_source, hn::Vec<typename L::D> scale_result,
                          LoadAt load_at) {
  const int sources = kSources != 0 ? kSources : o.source_count;
  auto total = load_at(0);
  if constexpr (kScaled) total = hn::Mul(total, scale_source);
  for (int s = 1; s < sources; ++s) {
    auto next = load_at(s);
    if constexpr (kScaled) next = hn::Mul(next, scale_source);
    total = Combine::Apply(total, next);
  }
  if constexpr (kScaled) total = hn::Mul(total, scale_result);
  return total;
}

// Elements [i, i + 4 lanes) from all sources to all destinations. Four vectors at a time, for the compiler must fetch
// the pointers, and count sources and destinations, anew after each store.
template <class L, class Combine, bool kScaled, int kSources>
HWY_INLINE void CombineFour(const Operands& o, hn::Vec<typename L::D> scale_source, hn::Vec<typename L::D> scale_result,
                            int64_t i, int64_t lanes) {
  using E = typename L::Element;
  const int sources = kSources != 0 ? kSources : o.source_count;
  const auto load = [&](const E* from) HWY_ATTR {
    if constexpr (kScaled) return hn::Mul(L::Load(from), scale_source);
    return L::Load(from);
  };
  const E* from = static_cast<const E*>(o.sources[0]) + i;
  auto a = load(from), b = load(from + lanes), c = load(from + 2 * lanes), d = load(from + 3 * lanes);
  for (int s = 1; s < sources; ++s) {
    from = static_cast<const E*>(o.sources[s]) + i;
    a = Combine::Apply(a, load(from));
    b = Combine::Apply(b, load(from + lanes));
    c = Combine::Apply(c, load(from + 2 * lanes));
    d = Combine::Apply(d, load(from + 3 * lanes));
  }
  if constexpr (kScaled) {
    a = hn::Mul(a, scale_result);
    b = hn::Mul(b, scale_result);
    c = hn::Mul(c, scale_result);
    d = hn::Mul(d, scale_result);
  }
  for (int k = 0; k < o.destination_count; ++k) {
    E* const to = static_cast<E*>(o.destinations[k]) + i;
    L::Store(a, to);
    L::Store(b, to + lanes);
    L::Store(c, to + 2 * lanes);
    L::Store(d, to + 3 * lanes);
  }
}

// kSources: 0 for any number.
template <class L, class Combine, bool kScaled, int kSources>
void ReduceLoop(const Operands& o, int64_t count) {
  using E = typename L::Element;
  using T = hn::TFromD<typename L::D>;
  const typename L::D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale_source = hn::Set(d, static_cast<T>(kScaled ? o.scale_source : 1));
  const auto scale_result = hn::Set(d, static_cast<T>(kScaled ? o.scale_result : 1));

  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    CombineFour<L, Combine, kScaled, kSources>(o, scale_source, scale_result, i, lanes);
  }
  for (; i + lanes <= count; i += lanes) {
    const auto total = CombineAt<L, Combine, kScaled, kSources>(o, scale_source, scale_result, [&](int s) HWY_ATTR {
      return L::Load(static_cast<const E*>(o.sources[s]) + i);
    });
    for (int k = 0; k < o.destination_count; ++k) L::Store(total, static_cast<E*>(o.destinations[k]) + i);
  }
  if (i >= count) return;
  if constexpr (L::kMaskedTail) {
    const auto rest = hn::FirstN(d, static_cast<size_t>(count - i));
    const auto total = CombineAt<L, Combine, kScaled, kSources>(o, scale_source, scale_result, [&](int s) HWY_ATTR {
      return hn::MaskedLoad(rest, d, static_cast<const E*>(o.sources[s]) + i);
    });
    for (int k = 0; k < o.destination_count; ++k) {
      hn::BlendedStore(total, rest, d, static_cast<E*>(o.destinations[k]) + i);
    }
  } else if constexpr (hn::MaxLanes(typename L::D()) > 1) {  // through a vector on the stack
    HWY_ALIGN E padded[hn::MaxLanes(typename L::D())] = {};
    const auto rest = std::min<size_t>(static_cast<size_t>(count - i), hn::Lanes(d)) * sizeof(E);
    const auto total = CombineAt<L, Combine, kScaled, kSources>(o, scale_source, scale_result, [&](int s) HWY_ATTR {
      std::memcpy(padded, static_cast<const E*>(o.sources[s]) + i, rest);
      return L::Load(padded);
    });
    L::Store(total, padded);
    for (int k = 0; k < o.destination_count; ++k) std::memcpy(static_cast<E*>(o.destinations[k]) + i, padded, rest);
  }
}

// Sums, which gradients are, have a loop for the usual numbers of sources. Each such loop costs compile time, so the
// other operations have one loop for any number.
template <class L, class Combine, bool kScaled>
HWY_INLINE void ReduceUnrolled(const Operands& o, int64_t count) {
  if constexpr (std::is_same_v<Combine, CombineSum>) {
    if (o.source_count == 2) return ReduceLoop<L, Combine, kScaled, 2>(o, count);
    if (o.source_count == 4) return ReduceLoop<L, Combine, kScaled, 4>(o, count);
  }
  ReduceLoop<L, Combine, kScaled, 0>(o, count);
}

template <class L, class Combine>
HWY_INLINE void ReduceScaledOrNot(const Operands& o, int64_t count) {
  if constexpr (std::is_floating_point_v<hn::TFromD<typename L::D>>) {
    if (o.scale_source != 1.0 || o.scale_result != 1.0) return ReduceUnrolled<L, Combine, true>(o, count);
  }
  return ReduceUnrolled<L, Combine, false>(o, count);
}

template <class L>
void ReduceNumbers(ReduceOp op, const Operands& o, int64_t count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return ReduceScaledOrNot<L, CombineSum>(o, count);
    case ReduceOp::kMin: return ReduceScaledOrNot<L, CombineMin>(o, count);
    case ReduceOp::kMax: return ReduceScaledOrNot<L, CombineMax>(o, count);
    case ReduceOp::kProduct: return ReduceScaledOrNot<L, CombineProduct>(o, count);
    case ReduceOp::kAdasum: return;  // is not of elements: nobody calls it
  }
}

inline void ReduceBooleans(ReduceOp op, const Operands& o, int64_t count) {
  const bool conjunction = op == ReduceOp::kMin || op == ReduceOp::kProduct;
  if (conjunction) return ReduceUnrolled<Lanes<uint8_t>, CombineAnd, false>(o, count);
  return ReduceUnrolled<Lanes<uint8_t>, CombineOr, false>(o, count);
}

inline void ReduceTyped(DType dtype, ReduceOp op, const Operands& o, int64_t count) {
  switch (dtype) {
    case DType::kU8: return ReduceNumbers<Lanes<uint8_t>>(op, o, count);
    case DType::kI8: return ReduceNumbers<Lanes<int8_t>>(op, o, count);
    case DType::kI16: return ReduceNumbers<Lanes<int16_t>>(op, o, count);
    case DType::kU16: return ReduceNumbers<Lanes<uint16_t>>(op, o, count);
    case DType::kI32: return ReduceNumbers<Lanes<int32_t>>(op, o, count);
    case DType::kI64: return ReduceNumbers<Lanes<int64_t>>(op, o, count);
    case DType::kF16: return ReduceNumbers<Float16Lanes>(op, o, count);
    case DType::kBF16: return ReduceNumbers<BFloat16Lanes>(op, o, count);
    case DType::kF32: return ReduceNumbers<Lanes<float>>(op, o, count);
    case DType::kF64: return ReduceNumbers<Lanes<double>>(op, o, count);
    case DType::kBool: return ReduceBooleans(op, o, count);
  }
}

}  // namespace gyre::device::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
