#include "compression/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gyre/dtype.h"
#include "support/mutator.h"
#include "targets.h"

namespace gyre::compression {
namespace {

using support::Mutator;

constexpr PayloadKind kKinds[] = {PayloadKind::kF16,  PayloadKind::kBF16, PayloadKind::kFp8E4M3, PayloadKind::kFp8E5M2,
                                  PayloadKind::kInt8, PayloadKind::kInt4, PayloadKind::kSign,    PayloadKind::kTernary};

std::vector<float> Values(int64_t count, uint64_t seed) {
  Mutator random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0),
                       -static_cast<int>(random.Below(6)));
    if (random.OneIn(20)) value = 0;
  }
  return values;
}

std::vector<std::byte> Quantized(PayloadKind kind, const std::vector<float>& values, std::vector<float>* kept,
                                 uint64_t seed = 1) {
  std::vector<std::byte> bytes(QuantizedBytes(kind, static_cast<int64_t>(values.size())) + 1, std::byte{0x5a});
  Quantize(kind, values.data(), kept == nullptr ? nullptr : kept->data(), static_cast<int64_t>(values.size()), seed,
           bytes.data());
  EXPECT_EQ(bytes.back(), std::byte{0x5a});  // not a byte too many
  bytes.pop_back();
  return bytes;
}

std::vector<float> Dequantized(PayloadKind kind, const std::vector<std::byte>& bytes, int64_t count) {
  std::vector<float> sum(count);
  DequantizeAdd(kind, bytes.data(), count, 1, sum.data());
  return sum;
}

float LargestOfBlock(const std::vector<float>& values, size_t i) {
  const size_t begin = i / kQuantizeBlock * kQuantizeBlock;
  float largest = 0;
  for (size_t k = begin; k < std::min(values.size(), begin + kQuantizeBlock); ++k) {
    largest = std::max(largest, std::abs(values[k]));
  }
  return largest;
}

// How far a decoded value may be from the value, given the largest of its block.
float Tolerance(PayloadKind kind, float value, float largest) {
  switch (kind) {
    case PayloadKind::kF16: return std::abs(value) * 0x1p-11f + 0x1p-25f;
    case PayloadKind::kBF16: return std::abs(value) * 0x1p-8f;
    case PayloadKind::kFp8E4M3: return std::abs(value) * 0x1.01p-4f + largest / 448 * 0x1p-10f;
    case PayloadKind::kFp8E5M2: return std::abs(value) * 0x1.01p-3f + largest / 57344 * 0x1p-17f;
    case PayloadKind::kInt8: return largest / 127 * 0.501f;
    case PayloadKind::kInt4: return largest / 7 * 0.501f;
    default: return largest;
  }
}

TEST(Quantize, DecodesNearTheValueAndKeepsTheRest) {
  for (const PayloadKind kind : kKinds) {
    for (const int64_t count : {0, 1, 2, 3, 7, 8, 9, 255, 256, 257, 1000, 4099}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + " of " + std::to_string(count));
      const auto values = Values(count, count + 1);
      std::vector<float> kept(count);
      const auto decoded = Dequantized(kind, Quantized(kind, values, &kept), count);
      for (int64_t i = 0; i < count; ++i) {
        const float largest = LargestOfBlock(values, i);
        ASSERT_LE(std::abs(values[i] - decoded[i]), Tolerance(kind, values[i], largest)) << i << " " << values[i];
        // Exact, but for signs and lots, whose error is no difference of near numbers.
        const bool exact = kind != PayloadKind::kSign && kind != PayloadKind::kTernary;
        ASSERT_NEAR(static_cast<double>(decoded[i]) + kept[i], values[i], exact ? 0 : 1e-7 * largest) << i;
      }
    }
  }
}

TEST(Quantize, HalvesAreThoseOfTheScalarTypes) {
  Mutator random(3);
  std::vector<float> values;
  for (int i = 0; i < 100'000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (int i = 0; i < 100'000; ++i) values.push_back(std::ldexp(values[i] - std::floor(values[i]), -14));
  const auto half = Quantized(PayloadKind::kF16, values, nullptr);
  const auto brain = Quantized(PayloadKind::kBF16, values, nullptr);
  const auto half_decoded = Dequantized(PayloadKind::kF16, half, static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    Float16 f16(values[i]);
    if (std::isfinite(values[i]) && !std::isfinite(static_cast<float>(f16))) f16.bits = (f16.bits & 0x8000) | 0x7bff;
    BFloat16 bf16(values[i]);
    if (std::isfinite(values[i]) && !std::isfinite(static_cast<float>(bf16))) bf16.bits -= 1;
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(half_decoded[i]));
      continue;
    }
    ASSERT_EQ(Load<uint16_t>(&half[2 * i]), f16.bits) << values[i];
    ASSERT_EQ(Load<uint16_t>(&brain[2 * i]), bf16.bits) << values[i];
    ASSERT_EQ(half_decoded[i], static_cast<float>(f16));
  }
}

TEST(Quantize, SameBitsOnEveryInstructionSet) {
  for (const PayloadKind kind : kKinds) {
    const auto values = Values(3001, 5);
    std::vector<std::byte> first;
    std::vector<float> first_kept, first_sum;
    ForEachTarget([&](const std::string& target) {
      SCOPED_TRACE(target + " " + std::to_string(static_cast<int>(kind)));
      std::vector<float> kept(3001, 0.01f);
      const auto bytes = Quantized(kind, values, &kept);
      const auto sum = Dequantized(kind, bytes, 3001);
      if (first.empty()) {
        first = bytes;
        first_kept = kept;
        first_sum = sum;
      }
      EXPECT_EQ(bytes, first);
      EXPECT_EQ(kept, first_kept);
      EXPECT_EQ(sum, first_sum);
    });
  }
}

TEST(Quantize, CutsAtBlocksGiveTheSameBytes) {
  const auto values = Values(1000, 6);
  for (const PayloadKind kind : {PayloadKind::kInt4, PayloadKind::kSign, PayloadKind::kF16}) {
    const auto whole = Quantized(kind, values, nullptr);
    auto parts = Quantized(kind, {values.begin(), values.begin() + 512}, nullptr);
    const auto rest = Quantized(kind, {values.begin() + 512, values.end()}, nullptr);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole);
  }
}

TEST(Quantize, NothingIsLostOverManySteps) {
  for (const PayloadKind kind : kKinds) {
    if (kind == PayloadKind::kTernary) continue;  // keeps nothing
    std::vector<float> kept(300);
    std::vector<double> given(300), taken(300);
    for (int step = 0; step < 200; ++step) {
      const auto values = Values(300, 100 + step);
      const auto decoded = Dequantized(kind, Quantized(kind, values, &kept), 300);
      for (int i = 0; i < 300; ++i) given[i] += values[i];
      for (int i = 0; i < 300; ++i) taken[i] += decoded[i];
    }
    for (int i = 0; i < 300; ++i) ASSERT_NEAR(taken[i] + kept[i], given[i], 1e-4) << static_cast<int>(kind);
  }
}

TEST(Quantize, TernaryIsUnbiased) {
  constexpr int kSteps = 4000;
  const std::vector<float> values = {1.0f, 0.5f, -0.25f, 0.0f, -1.0f};
  std::vector<double> mean(5);
  for (int step = 0; step < kSteps; ++step) {
    const auto decoded = Dequantized(PayloadKind::kTernary, Quantized(PayloadKind::kTernary, values, nullptr, step), 5);
    for (int i = 0; i < 5; ++i) mean[i] += decoded[i] / kSteps;
  }
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(mean[i], values[i], 5 * 0.5 / std::sqrt(kSteps)) << i;
}

TEST(Quantize, WhatIsNotFiniteArrivesAndIsNotKept) {
  for (const PayloadKind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    auto values = Values(600, 8);
    values[300] = std::numeric_limits<float>::infinity();
    std::vector<float> kept(600, 0.5f);
    const auto decoded = Dequantized(kind, Quantized(kind, values, &kept), 600);
    EXPECT_FALSE(std::isfinite(decoded[300]));
    for (int i = 0; i < 256; ++i) EXPECT_TRUE(std::isfinite(decoded[i]));
    for (const float value : kept) EXPECT_TRUE(std::isfinite(value));
    const bool by_block = kind != PayloadKind::kF16 && kind != PayloadKind::kBF16;
    EXPECT_EQ(kept[300], by_block ? 0.5f : 0.0f);
  }
}

// The sum of a block's magnitudes must stay finite, or signs would keep infinities for good.
TEST(Quantize, WhatIsTooLargeToBeSummedIsNotFinite) {
  for (const PayloadKind kind : kKinds) {
    if (kind == PayloadKind::kF16 || kind == PayloadKind::kBF16) continue;
    SCOPED_TRACE(static_cast<int>(kind));
    ForEachTarget([&](const std::string& target) {
      SCOPED_TRACE(target);
      for (const float value : {2e36f, 0x1p120f}) {
        std::vector<float> kept(256, 0.5f);
        for (const float got : Dequantized(kind, Quantized(kind, std::vector<float>(256, value), &kept), 256)) {
          ASSERT_TRUE(std::isnan(got));
        }
        EXPECT_EQ(kept, std::vector<float>(256, 0.5f));
      }
      std::vector<float> kept(256);
      const float most = std::nextafter(0x1p120f, 0.0f);
      for (const float got : Dequantized(kind, Quantized(kind, std::vector<float>(256, most), &kept), 256)) {
        ASSERT_NEAR(got, most, 1e-5 * most);
      }
      for (const float error : kept) ASSERT_LE(std::abs(error), 1e-5 * most);
    });
  }
}

TEST(Quantize, WhatIsTooSmallIsKept) {
  for (const PayloadKind kind : kKinds) {
    if (kind == PayloadKind::kF16 || kind == PayloadKind::kBF16) continue;
    const std::vector<float> values(10, 0x1p-120f);
    std::vector<float> kept(10);
    EXPECT_EQ(Dequantized(kind, Quantized(kind, values, &kept), 10), std::vector<float>(10));
    EXPECT_EQ(kept, values);
  }
}

TEST(Dequantize, AddsScaled) {
  const std::vector<float> values = {1, -1, 0.5f};
  const auto bytes = Quantized(PayloadKind::kF16, values, nullptr);
  std::vector<float> sum = {10, 20, 30};
  DequantizeAdd(PayloadKind::kF16, bytes.data(), 3, 0.25f, sum.data());
  EXPECT_EQ(sum, (std::vector<float>{10.25f, 19.75f, 30.125f}));
}

}  // namespace
}  // namespace gyre::compression
