#include "exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace char_lm {
namespace {

TEST(ExactSum, RoundsToTheNearestMultiple) {
  EXPECT_EQ(RoundTo(0.25f, 0.0f), 0.0f);
  EXPECT_EQ(RoundTo(0.25f, 0.3f), 0.25f);
  EXPECT_EQ(RoundTo(0.25f, -0.4f), -0.5f);
  EXPECT_EQ(RoundTo(0.25f, 1000.1f), 1000.0f);
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (int i = 0; i < 10000; ++i) {
    const float x = uniform(engine), rounded = RoundTo(kGradientQuantum, x);
    ASSERT_EQ(std::remainder(rounded, kGradientQuantum), 0.0f) << x;
    ASSERT_LE(std::abs(rounded - x), kGradientQuantum / 2) << x;
  }
}

TEST(ExactSum, LargeTermsAreHardlyChanged) {
  for (float x : {1.3f, -1.7f, -2.4f, 100.0f / 3, -1e20f}) {
    EXPECT_NEAR(RoundTo(kGradientQuantum, x), x, 1e-6 * std::abs(x)) << x;
  }
}

// Shares of a mean gradient that is small next to the quantum times the number of samples are not lost.
TEST(ExactSum, LargeBatchesKeepSmallGradients) {
  for (const int64_t batch : {1, 127, 129, 1536, 4096, 16384, 16385, 100'000, 1 << 22, 1 << 24}) {
    const int64_t slices = (batch + SliceSize(batch) - 1) / SliceSize(batch);
    EXPECT_LE(slices, kMostSlices) << batch;
    EXPECT_GE(slices, std::min<int64_t>((batch + 127) / 128, kMostSlices / 2)) << batch;
    const float mean = 1e-4f;
    const std::vector<float> term = {mean / static_cast<float>(slices)};
    std::vector<float> sum = {0.0f};
    for (int64_t slice = 0; slice < slices; ++slice) AddRounded(term, sum);
    EXPECT_NEAR(sum[0], mean, 0.16 * mean) << batch;
  }
}

TEST(ExactSum, DoesNotDependOnGrouping) {
  constexpr size_t kCount = 37, kTerms = 24;
  std::mt19937 engine(2);
  std::normal_distribution<float> normal(0.0f, 0.01f);
  std::vector<std::vector<float>> terms(kTerms, std::vector<float>(kCount));
  for (auto& term : terms) {
    for (float& x : term) x = normal(engine);
  }
  std::vector<float> whole(kCount, 0.0f);
  for (const auto& term : terms) AddRounded(term, whole);
  for (size_t ranks : {2, 3, 5, 24}) {
    std::vector<float> sum(kCount, 0.0f);
    for (size_t rank = ranks; rank-- > 0;) {  // backwards, too
      std::vector<float> part(kCount, 0.0f);
      for (size_t t = rank; t < kTerms; t += ranks) AddRounded(terms[t], part);
      for (size_t i = 0; i < kCount; ++i) sum[i] += part[i];
    }
    EXPECT_EQ(sum, whole) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace char_lm
