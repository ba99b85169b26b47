#include "compression/accumulate.h"

// The order matters: foreach_target.h includes this file again for every target, each time with the kernels after it.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/accumulate.cc"
// SSE2 runs everywhere, AVX2 and AVX-512 where training is done. Each target costs seconds of compiling.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include "hwy/foreach_target.h"
#include "compression/accumulate_kernels-inl.h"
// clang-format on

#if HWY_ONCE
namespace gyre::compression {

namespace {

HWY_EXPORT(SelectHere);
HWY_EXPORT(AccumulateHere);
HWY_EXPORT(SumOfSquaresHere);

}  // namespace

PassResult AccumulateAndSelect(const Accumulation& arrays, int64_t begin, int64_t end, float threshold,
                               Candidates& candidates) {
  return HWY_DYNAMIC_DISPATCH(SelectHere)(arrays, begin, end, threshold, candidates);
}

int64_t Accumulate(const Accumulation& arrays, int64_t begin, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(AccumulateHere)(arrays, begin, end);
}

Squares SumOfSquares(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresHere)(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace gyre::compression
#endif  // HWY_ONCE
