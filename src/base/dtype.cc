#include "gyre/dtype.h"

#include <bit>
#include <utility>

namespace gyre {

namespace {

constexpr std::string_view kNames[kDTypeCount] = {"u8",  "i8",   "i16", "u16", "i32", "i64",
                                                  "f16", "bf16", "f32", "f64", "bool"};

constexpr std::pair<std::string_view, DType> kAliases[] = {
    {"uint8", DType::kU8},    {"int8", DType::kI8},       {"int16", DType::kI16},   {"uint16", DType::kU16},
    {"int32", DType::kI32},   {"int", DType::kI32},       {"int64", DType::kI64},   {"float16", DType::kF16},
    {"half", DType::kF16},    {"bfloat16", DType::kBF16}, {"float32", DType::kF32}, {"float", DType::kF32},
    {"float64", DType::kF64}, {"double", DType::kF64}};

// Shifts `value` right by `shift` bits (1 to 31), rounding to nearest even.
constexpr uint32_t ShiftRightRounded(uint32_t value, int shift) {
  const uint32_t half = 1u << (shift - 1);
  const uint32_t rest = value & ((1u << shift) - 1);
  uint32_t result = value >> shift;
  if (rest > half || (rest == half && (result & 1u) != 0)) ++result;
  return result;
}

constexpr uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN, made quiet
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 2^16 or more: infinity
  if (magnitude >= 0x38800000u) {                       // normal in half precision
    return sign | static_cast<uint16_t>(ShiftRightRounded(magnitude - 0x38000000u, 13));
  }
  const int exponent = static_cast<int>(magnitude >> 23);
  if (exponent < 102) return sign;  // below half of the smallest subnormal
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  return sign | static_cast<uint16_t>(ShiftRightRounded(significand, 126 - exponent));
}

constexpr float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t significand = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (significand << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (significand << 13));
  const float magnitude = static_cast<float>(significand) * 0x1p-24f;  // subnormal or zero: exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

constexpr uint16_t FloatToBFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN, made quiet
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  const auto index = static_cast<unsigned>(dtype);
  return index < kDTypeCount ? kNames[index] : "unknown dtype";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (name == kNames[i]) return static_cast<DType>(i);
  }
  for (const auto& [alias, dtype] : kAliases) {
    if (name == alias) return dtype;
  }
  return std::nullopt;
}

Float16::Float16(float value) : bits(FloatToHalf(value)) {}
Float16::operator float() const {
  return HalfToFloat(bits);
}

BFloat16::BFloat16(float value) : bits(FloatToBFloat(value)) {}
BFloat16::operator float() const {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace gyre
