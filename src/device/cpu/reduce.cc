#include "device/reduce.h"

#include <algorithm>
#include <cstring>

// The order matters: foreach_target.h includes this file again for every target, each time with the kernels after it.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/reduce.cc"
// SSE2 runs everywhere, AVX2 and AVX-512 where training is done. Each target costs seconds of compiling.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include "hwy/foreach_target.h"
#include "device/cpu/reduce_kernels-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace gyre::device::HWY_NAMESPACE {

void ReduceHere(const Reduction& reduction, std::span<const void* const> sources, std::span<void* const> destinations,
                int64_t count) {
  const Operands operands{sources.data(),         static_cast<int>(sources.size()),
                          destinations.data(),    static_cast<int>(destinations.size()),
                          reduction.scale_source, reduction.scale_result};
  ReduceTyped(reduction.dtype, reduction.op, operands, count);
}

}  // namespace gyre::device::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gyre::device {

namespace {

HWY_EXPORT(ReduceHere);

bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

template <typename T>
void Divide(std::span<void* const> destinations, int64_t count, int64_t divisor) {
  for (void* destination : destinations) {
    auto* at = static_cast<char*>(destination);
    for (int64_t i = 0; i < count; ++i, at += sizeof(T)) {
      T value;
      std::memcpy(&value, at, sizeof(T));
      value = static_cast<T>(value / divisor);
      std::memcpy(at, &value, sizeof(T));
    }
  }
}

void DivideIntegers(DType dtype, std::span<void* const> destinations, int64_t count, int64_t divisor) {
  switch (dtype) {
    case DType::kU8: return Divide<uint8_t>(destinations, count, divisor);
    case DType::kI8: return Divide<int8_t>(destinations, count, divisor);
    case DType::kI16: return Divide<int16_t>(destinations, count, divisor);
    case DType::kU16: return Divide<uint16_t>(destinations, count, divisor);
    case DType::kI32: return Divide<int32_t>(destinations, count, divisor);
    case DType::kI64: return Divide<int64_t>(destinations, count, divisor);
    default: return;
  }
}

}  // namespace

Reduction MakeReduction(DType dtype, ReduceOp op, double prescale, double postscale, int ranks) {
  Reduction reduction{.dtype = dtype, .op = op, .scale_source = prescale, .scale_result = postscale};
  if (op == ReduceOp::kAverage) {
    if (IsFloat(dtype)) {
      reduction.scale_result = postscale / ranks;
    } else {
      reduction.divisor = ranks;
    }
  }
  return reduction;
}

void Reduce(const Reduction& reduction, std::span<const void* const> sources, std::span<void* const> destinations,
            int64_t count) {
  if (count <= 0) return;
  HWY_DYNAMIC_DISPATCH(ReduceHere)(reduction, sources, destinations, count);
  if (reduction.divisor != 1) DivideIntegers(reduction.dtype, destinations, count, reduction.divisor);
}

const char* SimdTargetName() {
  const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(supported & -supported);  // the lowest bit is the best target
}

}  // namespace gyre::device
#endif  // HWY_ONCE
