#include "compression/quantize.h"

// The order matters: foreach_target.h includes this file again for every target, each time with the kernels after it.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/quantize.cc"
// SSE2 runs everywhere, AVX2 and AVX-512 where training is done. Each target costs seconds of compiling.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include "hwy/foreach_target.h"
#include "compression/quantize_kernels-inl.h"
// clang-format on

#if HWY_ONCE
namespace gyre::compression {

namespace {

HWY_EXPORT(QuantizeHere);
HWY_EXPORT(DequantizeHere);

int BitsOf(PayloadKind kind) {
  switch (kind) {
    case PayloadKind::kF32: return 32;
    case PayloadKind::kF16:
    case PayloadKind::kBF16: return 16;
    case PayloadKind::kFp8E4M3:
    case PayloadKind::kFp8E5M2:
    case PayloadKind::kInt8: return 8;
    case PayloadKind::kInt4: return 4;
    case PayloadKind::kSign: return 1;
    case PayloadKind::kTernary: return 2;
    default: return 0;
  }
}

// All is sent, so that nothing is kept.
void CopyFloats(const float* gradient, float* kept, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = gradient == nullptr ? kept[i] : kept == nullptr ? gradient[i] : gradient[i] + kept[i];
    Store(out + i * 4, value);
    if (kept != nullptr) kept[i] = 0;
  }
}

}  // namespace

int64_t QuantizedBytes(PayloadKind kind, int64_t count) {
  const int bits = BitsOf(kind);
  if (bits >= 16) return count * (bits / 8);
  const int64_t blocks = (count + kQuantizeBlock - 1) / kQuantizeBlock;
  // All blocks but the last are whole, and whole blocks are whole bytes.
  return blocks * 4 + count / 8 * bits + (count % 8 * bits + 7) / 8;
}

void Quantize(PayloadKind kind, const float* gradient, float* kept, int64_t count, uint64_t seed, std::byte* out) {
  if (count == 0) return;
  if (kind == PayloadKind::kF32) return CopyFloats(gradient, kept, count, out);
  HWY_DYNAMIC_DISPATCH(QuantizeHere)(kind, gradient, kept, count, seed, out);
}

void DequantizeAdd(PayloadKind kind, const std::byte* from, int64_t count, float scale, float* sum) {
  HWY_DYNAMIC_DISPATCH(DequantizeHere)(kind, from, count, scale, sum);
}

}  // namespace gyre::compression
#endif  // HWY_ONCE
