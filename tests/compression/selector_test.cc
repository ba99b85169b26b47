#include "compression/selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "support/mutator.h"
#include "targets.h"

namespace gyre::compression {
namespace {

using support::Mutator;

float Uniform(Mutator& random) {
  return static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
}

// Heavy tails, many equal values, zeros.
float Value(Mutator& random, int style) {
  if (style == 0) return Uniform(random) * Uniform(random) * Uniform(random);
  if (style == 1) return static_cast<float>(static_cast<int>(random.Below(7)) - 3);
  return random.OneIn(50) ? Uniform(random) : 0.0f;
}

// Unaligned on purpose: the data begins at element 1.
struct Tensor {
  explicit Tensor(int64_t count) : u(count + 1), v(count + 1), g(count + 1) {}
  std::vector<float> u, v, g;
};

// What the pass must do, written plainly.
struct Reference {
  std::vector<float> u, v;
  std::vector<uint32_t> indices;
  std::vector<float> values;

  void Step(const Tensor& tensor, int64_t count, int64_t k, float m, float scale, bool nesterov, bool masked) {
    for (int64_t i = 0; i < count; ++i) {
      const float raw = tensor.g[i + 1];
      volatile const float g = std::isfinite(raw) ? raw * scale : 0.0f;  // volatile: no fused operations
      if (nesterov) {
        volatile const float sum = u[i] + g;
        u[i] = m * sum;
        volatile const float part = v[i] + u[i];
        v[i] = part + g;
      } else {
        volatile const float product = m * u[i];
        u[i] = product + g;
        v[i] = v[i] + u[i];
      }
    }
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    const auto key = [&](uint32_t i) { return std::bit_cast<uint32_t>(v[i]) & 0x7fffffffu; };
    std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
    order.resize(k);
    std::erase_if(order, [&](uint32_t i) { return key(i) == 0; });
    std::ranges::sort(order);
    indices = order;
    values.clear();
    for (const uint32_t i : indices) {
      values.push_back(v[i]);
      v[i] = 0;
      if (masked) u[i] = 0;
    }
  }
};

void ExpectSameBits(const float* actual, const std::vector<float>& expected, const char* what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i])) << what << " " << i;
  }
}

void RunAgainstReference(int64_t count, int64_t k, int style, bool nesterov, bool masked, uint64_t seed) {
  Mutator random(seed);
  Tensor tensor(count);
  Reference reference{std::vector<float>(count), std::vector<float>(count), {}, {}};
  Selector selector;
  for (int step = 0; step < 6; ++step) {
    for (float& value : tensor.g) value = Value(random, style);
    // The fourth gradient makes the threshold far too high for the fifth.
    if (step == 3) std::ranges::for_each(tensor.g, [](float& value) { value *= 1e4f; });
    if (random.OneIn(3)) tensor.g[1 + random.Below(count)] = std::numeric_limits<float>::quiet_NaN();
    const auto bad = std::count_if(tensor.g.begin() + 1, tensor.g.end(), [](float x) { return !std::isfinite(x); });
    const Accumulation arrays{.momentum = tensor.u.data() + 1,
                              .velocity = tensor.v.data() + 1,
                              .gradient = tensor.g.data() + 1,
                              .factor = 0.9f,
                              .scale = 0.7f,
                              .nesterov = nesterov,
                              .masked = masked};
    EXPECT_EQ(selector.SelectLargest(arrays, count, k).non_finite, bad);
    reference.Step(tensor, count, k, 0.9f, 0.7f, nesterov, masked);
    ASSERT_TRUE(std::ranges::equal(selector.indices(), reference.indices)) << step;
    ExpectSameBits(selector.values().data(), reference.values, "values");
    ExpectSameBits(tensor.v.data() + 1, reference.v, "v");
    ExpectSameBits(tensor.u.data() + 1, reference.u, "u");
  }
}

TEST(Selector, IsWhatTheReferenceIsOnEveryInstructionSet) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    uint64_t seed = 0;
    for (const int64_t count : {1, 2, 15, 16, 17, 63, 64, 65, 1000, 20'011}) {
      for (const int64_t k : {int64_t{1}, count / 100 + 1, count / 2 + 1, count}) {
        for (int style = 0; style < 3; ++style) {
          SCOPED_TRACE(std::to_string(count) + " " + std::to_string(k) + " " + std::to_string(style));
          RunAgainstReference(count, std::min(k, count), style, style == 1, style != 2, ++seed);
        }
      }
    }
  });
}

TEST(Selector, DoesNotRescanInTheUsualStep) {
  constexpr int64_t kCount = 200'000, kKept = 200;
  constexpr int kSteps = 100;
  Mutator random(5);
  Tensor tensor(kCount);
  Selector selector;
  int rescans = 0;
  for (int step = 0; step < kSteps; ++step) {
    for (float& value : tensor.g) value = Value(random, 0);
    const Accumulation arrays{
        .momentum = tensor.u.data(), .velocity = tensor.v.data(), .gradient = tensor.g.data(), .factor = 0.9f};
    rescans += selector.SelectLargest(arrays, kCount, kKept).rescanned ? 1 : 0;
    ASSERT_EQ(selector.indices().size(), static_cast<size_t>(kKept));
  }
  EXPECT_LE(rescans, kSteps / 20);
}

TEST(Selector, DoesNotRescanWhereLessThanKIsNotZero) {
  std::vector<float> v(10'000), g(10'000);
  Selector selector;
  for (int step = 1; step <= 5; ++step) {
    for (size_t i = 0; i < 10; ++i) g[1000 * i + 7] = static_cast<float>(step + static_cast<int>(i));
    EXPECT_FALSE(selector.SelectLargest({.velocity = v.data(), .gradient = g.data()}, 10'000, 100).rescanned) << step;
    EXPECT_EQ(selector.indices().size(), 10u);
    EXPECT_EQ(selector.values()[9], static_cast<float>(step + 9));
  }
}

// The third step's threshold would be beyond what a float holds.
TEST(Selector, ComesBackFromTheLargestNumbers) {
  std::vector<float> v(1000), g(1000);
  Selector selector;
  for (const float value : {9e37f, 2.5e38f, 1.0f}) {
    std::ranges::fill(g, value);
    selector.SelectLargest({.velocity = v.data(), .gradient = g.data()}, 1000, 500);
    ASSERT_EQ(selector.indices().size(), 500u);
  }
  EXPECT_EQ(selector.indices()[499], 499u);  // these waited for two steps
  EXPECT_EQ(selector.values()[499], 2.5e38f);
  std::vector<float> left(1000);
  std::fill(left.begin() + 500, left.end(), 1.0f);
  EXPECT_EQ(v, left);
}

TEST(Selector, PassesOnInfinityAndNaNOfTheAccumulatedFirst) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> v = {1, -kInf, 3, std::nanf(""), 2}, g(5);
  Selector selector;
  selector.SelectLargest({.velocity = v.data(), .gradient = g.data()}, 5, 3);
  EXPECT_EQ(std::vector<uint32_t>(selector.indices().begin(), selector.indices().end()),
            (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(v, (std::vector<float>{1, 0, 0, 0, 2}));
}

TEST(Selector, AboveAThresholdTakesAllButNotMoreThanTwice) {
  constexpr int64_t kCount = 10'000;
  Mutator random(7);
  std::vector<float> v(kCount), g(kCount);
  for (float& value : g) value = Uniform(random);
  Selector selector;
  const Accumulation arrays{.velocity = v.data(), .gradient = g.data()};
  selector.SelectAbove(arrays, kCount, 1000, 0.9f);
  const auto above = std::ranges::count_if(g, [](float value) { return std::abs(value) > 0.9f; });
  EXPECT_EQ(static_cast<int64_t>(selector.indices().size()), above);
  for (size_t i = 0; i < selector.indices().size(); ++i) EXPECT_EQ(selector.values()[i], g[selector.indices()[i]]);
}

// The k largest, wherever a pass had no more room: which depends on the instruction set.
TEST(Selector, AboveAThresholdThatIsTooLowAreTheLargest) {
  constexpr int64_t kCount = 10'000;
  Mutator random(17);
  std::vector<float> g(kCount);
  for (float& value : g) value = Uniform(random);
  std::vector<float> expected(kCount);
  Selector largest;
  largest.SelectLargest({.velocity = expected.data(), .gradient = g.data()}, kCount, 100);
  ForEachTarget([&](const std::string& target) {
    for (const float threshold : {0.0f, 0.5f, 0.97f}) {
      SCOPED_TRACE(target + " above " + std::to_string(threshold));
      std::vector<float> v(kCount);
      Selector selector;
      selector.SelectAbove({.velocity = v.data(), .gradient = g.data()}, kCount, 100, threshold);
      EXPECT_TRUE(std::ranges::equal(selector.indices(), largest.indices()));
      EXPECT_TRUE(std::ranges::equal(selector.values(), largest.values()));
      EXPECT_EQ(v, expected);
    }
  });
}

TEST(Accumulate, IsTheSamePassWithoutPicking) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    Mutator random(9);
    Tensor a(1003), b(1003);
    for (float& value : a.g) value = Uniform(random);
    a.g[500] = std::numeric_limits<float>::infinity();
    b.g = a.g;
    Selector selector;
    for (int step = 0; step < 3; ++step) {
      const Accumulation first{
          .momentum = a.u.data() + 1, .velocity = a.v.data() + 1, .gradient = a.g.data() + 1, .factor = 0.5f};
      const Accumulation second{
          .momentum = b.u.data() + 1, .velocity = b.v.data() + 1, .gradient = b.g.data() + 1, .factor = 0.5f};
      EXPECT_EQ(Accumulate(first, 0, 1003), 1);
      EXPECT_EQ(selector.SelectAbove(second, 1003, 1, std::numeric_limits<float>::max()).non_finite, 1);
    }
    EXPECT_EQ(a.u, b.u);
    EXPECT_EQ(a.v, b.v);
  });
}

TEST(SumOfSquares, OfOddCounts) {
  for (const size_t count : {0u, 1u, 7u, 1001u}) {
    std::vector<float> values(count + 1);
    double expected = 0;
    for (size_t i = 0; i < count; ++i) {
      values[i + 1] = static_cast<float>(i) - 3;
      expected += values[i + 1] * values[i + 1];
    }
    const auto squares = SumOfSquares(std::span(values).subspan(1));
    EXPECT_EQ(squares.sum, expected);
    EXPECT_EQ(squares.non_finite, 0);
  }
}

TEST(SumOfSquares, LeavesOutWhatIsNotFinite) {
  std::vector<float> values(100, 2.0f);
  values[3] = std::numeric_limits<float>::infinity();
  values[99] = std::nanf("");
  EXPECT_EQ(SumOfSquares(values).sum, 98 * 4);
  EXPECT_EQ(SumOfSquares(values).non_finite, 2);
}

}  // namespace
}  // namespace gyre::compression
