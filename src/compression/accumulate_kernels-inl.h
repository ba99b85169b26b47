// The accumulating pass, compiled once for every SIMD target (Highway's foreach_target); no include guard in the usual
// sense.

#if defined(GYRE_COMPRESSION_ACCUMULATE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GYRE_COMPRESSION_ACCUMULATE_KERNELS_INL_H_
#undef GYRE_COMPRESSION_ACCUMULATE_KERNELS_INL_H_
#else
#define GYRE_COMPRESSION_ACCUMULATE_KERNELS_INL_H_
#endif

#include <bit>
#include <cstdint>

#include "compression/accumulate.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gyre::compression::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using M = hn::Mask<D>;

// How v changes; the arrays of Accumulation that there are.
enum class Rule { kNone, kPlain, kHeavyBall, kNesterov };

constexpr bool HasMomentum(Rule rule) {
  return rule == Rule::kHeavyBall || rule == Rule::kNesterov;
}

// One vector's worth, from memory to memory. Returns v, and whether all of g was finite.
template <Rule kRule, bool kClear>
HWY_INLINE V Step(const Accumulation& a, int64_t i, V factor, V scale, M& finite) {
  const D d;
  V v = hn::LoadU(d, a.velocity + i);
  if constexpr (kRule == Rule::kNone) return v;
  const V raw = hn::LoadU(d, a.gradient + i);
  finite = hn::Lt(hn::Abs(raw), hn::Inf(d));
  const V g = hn::IfThenElseZero(finite, hn::Mul(raw, scale));
  if constexpr (kClear) hn::StoreU(hn::Zero(d), d, a.cleared + i);
  if constexpr (kRule == Rule::kPlain) {
    v = hn::Add(v, g);
  } else {
    V u = hn::LoadU(d, a.momentum + i);
    if constexpr (kRule == Rule::kNesterov) {
      u = hn::Mul(factor, hn::Add(u, g));
      v = hn::Add(hn::Add(v, u), g);
    } else {
      u = hn::Add(hn::Mul(factor, u), g);
      v = hn::Add(v, u);
    }
    hn::StoreU(u, d, a.momentum + i);
  }
  hn::StoreU(v, d, a.velocity + i);
  return v;
}

// Elements whose magnitude's bits are more than `threshold`.
HWY_INLINE M Larger(V v, hn::Vec<DI> threshold) {
  const D d;
  return hn::RebindMask(d, hn::Gt(hn::BitCast(DI(), hn::Abs(v)), threshold));
}

// Moves the elements of `larger`, which lie at i, to the candidates.
HWY_INLINE void PickOut(const Accumulation& a, int64_t i, V v, M larger, Candidates& c) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const auto at = c.count;
  const auto position = hn::Iota(du, static_cast<uint32_t>(i));
  hn::StoreU(hn::Compress(position, hn::RebindMask(du, larger)), du, c.indices + at);
  hn::StoreU(hn::Compress(v, larger), d, c.velocities + at);
  hn::StoreU(hn::IfThenZeroElse(larger, v), d, a.velocity + i);
  if (a.momentum != nullptr) {
    const V u = hn::LoadU(d, a.momentum + i);
    hn::StoreU(hn::Compress(u, larger), d, c.momenta + at);
    if (a.masked) hn::StoreU(hn::IfThenZeroElse(larger, u), d, a.momentum + i);
  }
  c.count = at + static_cast<int64_t>(hn::CountTrue(d, larger));
}

inline void PickOutOne(const Accumulation& a, int64_t i, float v, Candidates& c) {
  c.indices[c.count] = static_cast<uint32_t>(i);
  c.velocities[c.count] = v;
  a.velocity[i] = 0;
  if (a.momentum != nullptr) {
    c.momenta[c.count] = a.momentum[i];
    if (a.masked) a.momentum[i] = 0;
  }
  ++c.count;
}

// The same for one element: the rest of an array that fills no vector. Rounds as the vectors do.
template <Rule kRule, bool kClear>
float StepOne(const Accumulation& a, int64_t i, bool& finite) {
  float v = a.velocity[i];
  if constexpr (kRule == Rule::kNone) return v;
  const float raw = a.gradient[i];
  finite = (std::bit_cast<uint32_t>(raw) & 0x7f800000u) != 0x7f800000u;
  const float g = finite ? raw * a.scale : 0.0f;
  if constexpr (kClear) a.cleared[i] = 0;
  if constexpr (kRule == Rule::kPlain) {
    v = v + g;
  } else if constexpr (kRule == Rule::kNesterov) {
    const float u = a.factor * (a.momentum[i] + g);
    a.momentum[i] = u;
    v = v + u + g;
  } else {
    const float u = a.factor * a.momentum[i] + g;
    a.momentum[i] = u;
    v = v + u;
  }
  a.velocity[i] = v;
  return v;
}

// Moves the elements of several vectors, from i on, to the candidates: few of them one by one, which mispredicts no
// branch but the last, and many vector by vector.
template <size_t kVectors>
HWY_INLINE void PickOutOf(const Accumulation& a, int64_t i, const V (&v)[kVectors], const M (&larger)[kVectors],
                          Candidates& c) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (hn::MaxLanes(D()) * kVectors <= 64) {
    constexpr int kFew = 5;
    uint64_t bits = 0;
    for (size_t k = 0; k < kVectors; ++k) {
      uint8_t stored[8] = {};
      hn::StoreMaskBits(d, larger[k], stored);
      bits |= static_cast<uint64_t>(stored[0] | stored[1] << 8) << (static_cast<int64_t>(k) * lanes);
    }
    if (std::popcount(bits) <= kFew) {
      for (; bits != 0; bits &= bits - 1) {
        const int64_t at = i + std::countr_zero(bits);
        PickOutOne(a, at, a.velocity[at], c);
      }
      return;
    }
  }
  for (size_t k = 0; k < kVectors; ++k) {
    if (!hn::AllFalse(d, larger[k])) PickOut(a, i + static_cast<int64_t>(k) * lanes, v[k], larger[k], c);
  }
}

template <Rule kRule, bool kSelect, bool kClear>
PassResult Pass(const Accumulation& a, int64_t begin, int64_t end, float threshold, Candidates& c) {
  constexpr int64_t kUnroll = 4;
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V factor = hn::Set(d, a.factor), scale = hn::Set(d, a.scale);
  const auto limit_bits = static_cast<int32_t>(std::bit_cast<uint32_t>(threshold));
  const auto limit = hn::Set(DI(), limit_bits);
  PassResult result;
  int64_t i = begin;
  M finite[kUnroll], larger[kUnroll];
  for (M& mask : finite) mask = hn::MaskFromVec(hn::BitCast(d, hn::Set(DI(), -1)));
  V v[kUnroll];
  for (; i + kUnroll * lanes <= end; i += kUnroll * lanes) {
    for (int64_t k = 0; k < kUnroll; ++k) v[k] = Step<kRule, kClear>(a, i + k * lanes, factor, scale, finite[k]);
    const M all_finite = hn::And(hn::And(finite[0], finite[1]), hn::And(finite[2], finite[3]));
    if (!hn::AllTrue(d, all_finite)) [[unlikely]] {
      for (const M& mask : finite) result.non_finite += lanes - static_cast<int64_t>(hn::CountTrue(d, mask));
    }
    if constexpr (kSelect) {
      for (int64_t k = 0; k < kUnroll; ++k) larger[k] = Larger(v[k], limit);
      const M any = hn::Or(hn::Or(larger[0], larger[1]), hn::Or(larger[2], larger[3]));
      if (hn::AllFalse(d, any)) [[likely]]
        continue;
      PickOutOf(a, i, v, larger, c);
      if (c.count + kCandidateSlack > c.capacity) [[unlikely]] {
        result.end = i + kUnroll * lanes;
        return result;
      }
    }
  }
  for (; i < end; ++i) {  // fewer than kCandidateSlack
    bool is_finite = true;
    const float value = StepOne<kRule, kClear>(a, i, is_finite);
    result.non_finite += is_finite ? 0 : 1;
    if constexpr (kSelect) {
      if (static_cast<int32_t>(std::bit_cast<uint32_t>(value) & 0x7fffffffu) > limit_bits) PickOutOne(a, i, value, c);
    }
  }
  result.end = end;
  return result;
}

template <bool kClear>
PassResult SelectBy(const Accumulation& a, int64_t begin, int64_t end, float threshold, Candidates& c) {
  if (a.momentum == nullptr) return Pass<Rule::kPlain, true, kClear>(a, begin, end, threshold, c);
  if (a.nesterov) return Pass<Rule::kNesterov, true, kClear>(a, begin, end, threshold, c);
  return Pass<Rule::kHeavyBall, true, kClear>(a, begin, end, threshold, c);
}

inline PassResult SelectHere(const Accumulation& a, int64_t begin, int64_t end, float threshold, Candidates& c) {
  if (a.gradient == nullptr) return Pass<Rule::kNone, true, false>(a, begin, end, threshold, c);
  if (a.cleared != nullptr) return SelectBy<true>(a, begin, end, threshold, c);
  return SelectBy<false>(a, begin, end, threshold, c);
}

inline int64_t AccumulateHere(const Accumulation& a, int64_t begin, int64_t end) {
  Candidates none;
  if (a.momentum == nullptr) return Pass<Rule::kPlain, false, false>(a, begin, end, 0, none).non_finite;
  if (a.nesterov) return Pass<Rule::kNesterov, false, false>(a, begin, end, 0, none).non_finite;
  return Pass<Rule::kHeavyBall, false, false>(a, begin, end, 0, none).non_finite;
}

inline Squares SumOfSquaresHere(const float* values, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  Squares result;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto raw = hn::LoadU(df, values + i);
    const auto finite = hn::Lt(hn::Abs(raw), hn::Inf(df));
    if (!hn::AllTrue(df, finite)) [[unlikely]] {
      result.non_finite += lanes - static_cast<int64_t>(hn::CountTrue(df, finite));
    }
    const auto x = hn::PromoteTo(d, hn::IfThenElseZero(finite, raw));
    sum = hn::Add(sum, hn::Mul(x, x));
  }
  result.sum = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) {
    const bool finite = (std::bit_cast<uint32_t>(values[i]) & 0x7f800000u) != 0x7f800000u;
    if (finite) result.sum += static_cast<double>(values[i]) * values[i];
    result.non_finite += finite ? 0 : 1;
  }
  return result;
}

}  // namespace gyre::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
