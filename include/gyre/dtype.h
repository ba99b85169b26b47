// Element types of tensors, and the two 16-bit floating-point types that C++20 lacks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "gyre/export.h"

namespace gyre {

enum class DType : uint8_t { kU8, kI8, kI16, kU16, kI32, kI64, kF16, kBF16, kF32, kF64, kBool };

inline constexpr int kDTypeCount = 11;

// Bytes of one element.
constexpr int64_t DTypeSize(DType dtype) {
  constexpr int8_t kSizes[kDTypeCount] = {1, 1, 2, 2, 4, 8, 2, 2, 4, 8, 1};
  return kSizes[static_cast<int>(dtype)];
}

// "u8", "i8", "i16", "u16", "i32", "i64", "f16", "bf16", "f32", "f64", "bool".
GYRE_EXPORT std::string_view DTypeName(DType dtype);

// The inverse of DTypeName; also takes "float", "double", "half" and "float32"-like spellings. Empty if unknown.
GYRE_EXPORT std::optional<DType> ParseDType(std::string_view name);

// IEEE 754 binary16, by its bits. Conversion from float rounds to nearest even; NaN stays NaN.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  GYRE_EXPORT explicit Float16(float value);
  GYRE_EXPORT explicit operator float() const;
  friend bool operator==(Float16, Float16) = default;  // by bits
};

// bfloat16 (the upper half of a binary32), by its bits. Conversion from float rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  GYRE_EXPORT explicit BFloat16(float value);
  GYRE_EXPORT explicit operator float() const;
  friend bool operator==(BFloat16, BFloat16) = default;  // by bits
};

// DTypeOf<T>: the DType of a C++ element type.
template <typename T>
struct DTypeTraits;
template <>
struct DTypeTraits<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeTraits<int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeTraits<int16_t> {
  static constexpr DType value = DType::kI16;
};
template <>
struct DTypeTraits<uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeTraits<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeTraits<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeTraits<Float16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeTraits<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeTraits<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeTraits<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeTraits<bool> {
  static constexpr DType value = DType::kBool;
};

template <typename T>
inline constexpr DType DTypeOf = DTypeTraits<T>::value;

}  // namespace gyre
