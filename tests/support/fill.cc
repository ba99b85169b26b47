#include "support/fill.h"

#include <cstring>

namespace gyre::support {

namespace {

// SplitMix64's finaliser, once for each part of the key.
uint64_t Mix(uint64_t key) {
  key += 0x9e3779b97f4a7c15u;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  return key ^ (key >> 31);
}

uint64_t Random(uint64_t seed, int rank, int64_t index) {
  return Mix(Mix(Mix(seed) ^ static_cast<uint64_t>(rank)) ^ static_cast<uint64_t>(index));
}

bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

template <typename T>
double Read(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));  // views may lie at any address
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
void Write(char* at, double number) {
  T value;
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    value = T(static_cast<float>(number));
  } else {
    value = static_cast<T>(number);
  }
  std::memcpy(at, &value, sizeof(value));
}

}  // namespace

double ExactValue(DType dtype, uint64_t seed, int rank, int64_t index) {
  const uint64_t bits = Random(seed, rank, index);
  if (IsFloatingPoint(dtype)) return (static_cast<double>(bits % 32) - 16) / 8;
  if (dtype == DType::kBool) return static_cast<double>(bits % 2);
  const bool is_unsigned = dtype == DType::kU8 || dtype == DType::kU16;
  return static_cast<double>(bits % 16) - (is_unsigned ? 0 : 8);
}

void FillExact(TensorView view, uint64_t seed, int rank) {
  for (int64_t i = 0; i < view.count; ++i) WriteElement(view, i, ExactValue(view.dtype, seed, rank, i));
}

void FillUniform(TensorView view, uint64_t seed, int rank) {
  if (!IsFloatingPoint(view.dtype)) return FillExact(view, seed, rank);
  for (int64_t i = 0; i < view.count; ++i) {
    WriteElement(view, i, static_cast<double>(Random(seed, rank, i) >> 11) * 0x1p-52 - 1);
  }
}

double ReadElement(ConstTensorView view, int64_t index) {
  const char* at = static_cast<const char*>(view.data) + index * DTypeSize(view.dtype);
  switch (view.dtype) {
    case DType::kU8: return Read<uint8_t>(at);
    case DType::kI8: return Read<int8_t>(at);
    case DType::kI16: return Read<int16_t>(at);
    case DType::kU16: return Read<uint16_t>(at);
    case DType::kI32: return Read<int32_t>(at);
    case DType::kI64: return Read<int64_t>(at);
    case DType::kF16: return Read<Float16>(at);
    case DType::kBF16: return Read<BFloat16>(at);
    case DType::kF32: return Read<float>(at);
    case DType::kF64: return Read<double>(at);
    case DType::kBool: return Read<bool>(at);
  }
  return 0;
}

void WriteElement(TensorView view, int64_t index, double value) {
  char* at = static_cast<char*>(view.data) + index * DTypeSize(view.dtype);
  switch (view.dtype) {
    case DType::kU8: return Write<uint8_t>(at, value);
    case DType::kI8: return Write<int8_t>(at, value);
    case DType::kI16: return Write<int16_t>(at, value);
    case DType::kU16: return Write<uint16_t>(at, value);
    case DType::kI32: return Write<int32_t>(at, value);
    case DType::kI64: return Write<int64_t>(at, value);
    case DType::kF16: return Write<Float16>(at, value);
    case DType::kBF16: return Write<BFloat16>(at, value);
    case DType::kF32: return Write<float>(at, value);
    case DType::kF64: return Write<double>(at, value);
    case DType::kBool: return Write<bool>(at, value != 0);
  }
}

}  // namespace gyre::support
