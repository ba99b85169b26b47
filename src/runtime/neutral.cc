#include "runtime/neutral.h"

#include <cstdint>
#include <cstring>
#include <limits>

namespace gyre::internal {

namespace {

template <typename T>
T NeutralOf(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  if (op == ReduceOp::kProduct) return T(1);
  if (op == ReduceOp::kMin) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  if (op == ReduceOp::kMax) return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  return T(0);
}

template <typename T>
void Fill(std::span<std::byte> bytes, T value) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) std::memcpy(bytes.data() + at, &value, sizeof(T));
}

}  // namespace

void FillNeutral(std::span<std::byte> bytes, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kU8: return Fill(bytes, NeutralOf<uint8_t>(op));
    case DType::kI8: return Fill(bytes, NeutralOf<int8_t>(op));
    case DType::kI16: return Fill(bytes, NeutralOf<int16_t>(op));
    case DType::kU16: return Fill(bytes, NeutralOf<uint16_t>(op));
    case DType::kI32: return Fill(bytes, NeutralOf<int32_t>(op));
    case DType::kI64: return Fill(bytes, NeutralOf<int64_t>(op));
    case DType::kF16: return Fill(bytes, Float16(NeutralOf<float>(op)).bits);
    case DType::kBF16: return Fill(bytes, BFloat16(NeutralOf<float>(op)).bits);
    case DType::kF32: return Fill(bytes, NeutralOf<float>(op));
    case DType::kF64: return Fill(bytes, NeutralOf<double>(op));
    case DType::kBool: return Fill(bytes, NeutralOf<bool>(op));
  }
}

}  // namespace gyre::internal
