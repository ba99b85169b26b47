#include "exact_sum.h"

#include <gtest/gtest.h>

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
