#include "fusion/arithmetic.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace gyre::fusion {
namespace {

TEST(Convert, KeepsWhatBothDtypesHave) {
  for (const int64_t count : {0, 1, 7, 1000}) {
    std::vector<float> in(static_cast<size_t>(count)), out(in.size());
    for (int64_t i = 0; i < count; ++i) in[static_cast<size_t>(i)] = static_cast<float>(i % 200 - 100) / 4;
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF64, DType::kF32}) {
      std::vector<std::byte> between(static_cast<size_t>(count * DTypeSize(dtype) + 1));
      const TensorView unaligned(between.data() + 1, count, dtype);
      Convert(in, unaligned);
      std::ranges::fill(out, -1.0f);
      Convert(unaligned, out);
      EXPECT_EQ(in, out) << DTypeName(dtype);
    }
  }
}

TEST(Convert, RoundsToNearestEven) {
  const std::vector<double> in = {1.00390625, 1.01171875, 1e300, -0.0, std::nan("")};  // bf16 has steps of 2^-7 there
  std::vector<BFloat16> out(in.size());
  Convert(in, out);
  EXPECT_EQ(static_cast<float>(out[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(out[1]), 1.015625f);
  EXPECT_TRUE(std::isinf(static_cast<float>(out[2])));
  EXPECT_TRUE(std::signbit(static_cast<float>(out[3])));
  EXPECT_TRUE(std::isnan(static_cast<float>(out[4])));
}

TEST(SumOfSquares, IsInDoublePrecision) {
  EXPECT_EQ(SumOfSquares(std::vector<float>()), 0);
  EXPECT_EQ(SumOfSquares(std::vector<float>{3, 4}), 25);
  EXPECT_EQ(SumOfSquares(std::vector<double>(17, 2)), 68);
  EXPECT_EQ(SumOfSquares(std::vector<Float16>(9, Float16(60000))),
            9 * static_cast<double>(float(Float16(60000))) * static_cast<double>(float(Float16(60000))));
  EXPECT_TRUE(std::isfinite(SumOfSquares(std::vector<float>(100, std::numeric_limits<float>::max()))));
  for (const size_t at : {size_t{0}, size_t{7}, size_t{16}}) {
    std::vector<float> one(17);
    one[at] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(std::isfinite(SumOfSquares(one)));
    EXPECT_FALSE(AllFinite(one));
    one[at] = std::nanf("");
    EXPECT_FALSE(std::isfinite(SumOfSquares(one)));
    EXPECT_FALSE(AllFinite(one));
  }
  EXPECT_TRUE(AllFinite(std::vector<double>(3, 1e300)));
}

TEST(AddAndScale, WorkInPlace) {
  std::vector<float> a = {1, 2, 3};
  const std::vector<float> b = {10, 20, 30};
  Add(b, a);
  EXPECT_EQ(a, (std::vector<float>{11, 22, 33}));
  Scale(a, 2);
  EXPECT_EQ(a, (std::vector<float>{22, 44, 66}));
}

}  // namespace
}  // namespace gyre::fusion
