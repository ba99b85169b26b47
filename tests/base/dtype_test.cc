#include "gyre/dtype.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "gyre/tensor.h"

namespace gyre {
namespace {

TEST(DType, NamesAndParsesEveryType) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(ParseDType("float32"), DType::kF32);
  EXPECT_EQ(ParseDType("half"), DType::kF16);
  EXPECT_FALSE(ParseDType("f8").has_value());
  EXPECT_EQ(DTypeSize(DType::kBF16), 2);
  EXPECT_EQ(DTypeSize(DType::kI64), 8);
  EXPECT_EQ(DTypeOf<float>, DType::kF32);
}

TEST(ReduceOp, NamesAndParsesEveryReduction) {
  for (int i = 0; i < kReduceOpCount; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(ParseReduceOp(ReduceOpName(op)), op);
  }
  EXPECT_EQ(ParseReduceOp("avg"), ReduceOp::kAverage);
  EXPECT_FALSE(ParseReduceOp("median").has_value());
}

// Every half converts to float and back to itself.
TEST(Float16, RoundTripsEveryValue) {
  for (int bits = 0; bits < 65536; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const auto wide = static_cast<float>(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(wide))));
    } else {
      ASSERT_EQ(Float16(wide).bits, bits);
    }
  }
}

TEST(Float16, KnownValues) {
  const auto value = [](uint16_t bits) {
    Float16 half;
    half.bits = bits;
    return static_cast<float>(half);
  };
  EXPECT_EQ(value(0x3c00), 1.0f);
  EXPECT_EQ(value(0xc000), -2.0f);
  EXPECT_EQ(value(0x7bff), 65504.0f);
  EXPECT_EQ(value(0x0001), 0x1p-24f);
  EXPECT_EQ(value(0x0400), 0x1p-14f);
  EXPECT_EQ(value(0x7c00), std::numeric_limits<float>::infinity());
}

TEST(Float16, RoundsToNearestEvenAndSaturatesToInfinity) {
  EXPECT_EQ(Float16(1.0f + 0x1p-11f).bits, 0x3c00);             // half-way: to even
  EXPECT_EQ(Float16(1.0f + 3 * 0x1p-11f).bits, 0x3c02);         // half-way: to even
  EXPECT_EQ(Float16(1.0f + 0x1p-11f + 0x1p-20f).bits, 0x3c01);  // above half-way
  EXPECT_EQ(Float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(0x1p-25f).bits, 0x0000);  // half of the smallest subnormal: to even
  EXPECT_EQ(Float16(std::nextafter(0x1p-25f, 1.0f)).bits, 0x0001);
  EXPECT_EQ(Float16(-1e-30f).bits, 0x8000);
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(1.0f + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  // A NaN whose upper half alone would read as infinity.
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace gyre
