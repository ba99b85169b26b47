// The definition that simulated calls are held against, itself held against results known by hand.
#include "collectives/hierarchical/expected.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace gyre {
namespace {

// What is wrong with `result` as that of the inputs, one a rank.
template <typename T>
std::string Wrong(const Reduction& reduction, std::vector<T> inputs, T result) {
  std::vector<ConstTensorView> views;
  for (const T& input : inputs) views.emplace_back(&input, 1, DTypeOf<T>);
  return Expected::Of(reduction, views, 0).Wrong({&result, 1, DTypeOf<T>}, 0);
}

std::vector<Float16> Halves(int count, float value) {
  return std::vector<Float16>(static_cast<size_t>(count), Float16(value));
}

TEST(Expected, IntegersWrapAndAreDividedTowardsZero) {
  EXPECT_EQ(Wrong<uint8_t>({ReduceOp::kSum}, {200, 100}, 44), "");
  EXPECT_EQ(Wrong<uint8_t>({ReduceOp::kSum}, {200, 100}, 45), "45, not 44");
  EXPECT_EQ(Wrong<int8_t>({ReduceOp::kSum}, {100, 100}, -56), "");
  EXPECT_EQ(Wrong<int8_t>({ReduceOp::kProduct}, {-7, 50}, -94), "");
  EXPECT_EQ(Wrong<int8_t>({ReduceOp::kAverage}, {-7, 2}, -2), "");
  EXPECT_EQ(Wrong<uint16_t>({ReduceOp::kAverage}, {65535, 2}, 0), "");
  EXPECT_EQ(Wrong<int64_t>({ReduceOp::kSum}, {int64_t{1} << 60, 1}, (int64_t{1} << 60) + 1), "");
  EXPECT_NE(Wrong<int64_t>({ReduceOp::kSum}, {int64_t{1} << 60, 1}, int64_t{1} << 60), "");
  EXPECT_EQ(Wrong<uint8_t>({ReduceOp::kMax}, {200, 100}, 200), "");
  EXPECT_EQ(Wrong<int32_t>({ReduceOp::kMin}, {-5, 3}, -5), "");
}

// Sums and products that fit the type are exact; of others, what n roundings lose of the magnitudes is granted.
TEST(Expected, NumbersAreAsFarOffAsRoundingTakesThem) {
  EXPECT_EQ(Wrong<float>({ReduceOp::kSum}, {0x1p-149F, 0x1p-148F}, 0x1.8p-148F), "");
  EXPECT_NE(Wrong<float>({ReduceOp::kSum}, {0x1p-149F, 0x1p-148F}, 0x1p-148F), "");
  EXPECT_EQ(Wrong<float>({ReduceOp::kSum}, {1.0F, 0x1p-24F}, 1.0F), "");
  EXPECT_NE(Wrong<float>({ReduceOp::kSum}, {1.0F, 0x1p-24F}, 1.0F + 0x1p-21F), "");
  EXPECT_NE(Wrong<double>({ReduceOp::kSum}, {1.0, 0x1p-53}, 1.0 + 0x1p-50), "");
  EXPECT_NE(Wrong<float>({ReduceOp::kProduct}, {4.0F, -0.5F}, -2.000001F), "");
  EXPECT_EQ(Wrong<float>({ReduceOp::kProduct, -1, 0.5}, {4.0F, -0.5F, 2.0F}, 2.0F), "");
  EXPECT_EQ(Wrong<double>({ReduceOp::kMax, -1, 0.5}, {4.0, -0.5, 2.0}, 0.25), "");
  EXPECT_NE(Wrong<double>({ReduceOp::kMax, -1, 0.5}, {4.0, -0.5, 2.0}, 0.5), "");
  EXPECT_NE(Wrong<float>({ReduceOp::kSum}, {1.0F, 2.0F}, std::numeric_limits<float>::quiet_NaN()), "");
}

// 64 ranks take a 64th each: what is below 2^-24 then is lost, no more.
TEST(Expected, AveragesOfHalvesMayLoseWhatThePowerOfTwoTakes) {
  EXPECT_EQ(Wrong<Float16>({ReduceOp::kAverage}, Halves(64, 0x1p-20F), Float16(0.0F)), "");
  EXPECT_NE(Wrong<Float16>({ReduceOp::kAverage}, Halves(64, 0x1p-17F), Float16(0.0F)), "");
  EXPECT_NE(Wrong<Float16>({ReduceOp::kSum}, Halves(64, 0x1p-20F), Float16(0.0F)), "");
  EXPECT_EQ(Wrong<Float16>({ReduceOp::kAverage}, Halves(64, 60000.0F), Float16(60000.0F)), "");
  EXPECT_NE(Wrong<Float16>({ReduceOp::kAverage}, Halves(64, 60000.0F), Float16(57000.0F)), "");
  EXPECT_NE(Wrong<Float16>({ReduceOp::kAverage}, Halves(64, 32768.0F), Float16(32736.0F)), "");
}

}  // namespace
}  // namespace gyre
