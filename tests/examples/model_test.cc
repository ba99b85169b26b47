// The model's arithmetic: gradients against finite differences, float against double, and that sums over shards are
// the whole.
#include "model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "blas.h"
#include "portable.h"
#include "random.h"
#include "text.h"

namespace char_lm {
namespace {

constexpr ModelShape kShape = {.alphabet = 7, .context = 3, .hidden = 10};

Samples RandomSamples(const ModelShape& shape, int count, uint64_t seed) {
  Samples samples;
  samples.count = count;
  for (int i = 0; i < count * (shape.context + 1); ++i) {
    samples.symbols.push_back(static_cast<uint8_t>(RandomBelow(shape.alphabet, seed, 1, i)));
  }
  return samples;
}

// Not only what Initialise gives: biases, too, are away from zero.
template <typename T>
std::vector<T> RandomWeights(const ModelShape& shape, uint64_t seed) {
  std::vector<T> weights(shape.parameters());
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<T>(RandomUnit(seed, 2, i) - 0.5);
  return weights;
}

template <typename T>
std::vector<T> GradientOf(const ModelShape& shape, std::vector<T> weights, const Samples& samples, T scale) {
  std::vector<T> gradient(weights.size(), T(0));
  Model<T>(shape).LossAndGradient(weights, samples, scale, gradient);
  return gradient;
}

TEST(Model, GradientIsTheSlopeOfTheLoss) {
  const Samples samples = RandomSamples(kShape, 40, 5);
  std::vector<double> weights = RandomWeights<double>(kShape, 6);
  const std::vector<double> gradient = GradientOf(kShape, weights, samples, 1.0);
  Model<double> model(kShape);
  constexpr double kStep = 1e-6;
  int moved = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double weight = weights[i];
    weights[i] = weight + kStep;
    const double above = model.Loss(weights, samples);
    weights[i] = weight - kStep;
    const double below = model.Loss(weights, samples);
    weights[i] = weight;
    ASSERT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-6 * (1 + std::abs(gradient[i]))) << "weight " << i;
    moved += gradient[i] != 0;
  }
  EXPECT_GT(moved, 0.7 * static_cast<double>(weights.size()));  // the rest hangs on units that are never on
}

TEST(Model, GradientsOfManySlicesAddUp) {  // more samples than are computed at once, and not a multiple
  const Samples samples = RandomSamples(kShape, 1000, 7);
  const std::vector<double> weights = RandomWeights<double>(kShape, 8);
  const std::vector<double> whole = GradientOf(kShape, weights, samples, 0.5);
  std::vector<double> sum(weights.size(), 0.0);
  double loss = 0;
  Model<double> model(kShape);
  for (int rank = 0; rank < 3; ++rank) {
    const Range range = Shard(samples.count, rank, 3);
    const int width = kShape.context + 1;
    const Samples part = {{samples.symbols.begin() + range.first * width, samples.symbols.begin() + range.last * width},
                          static_cast<int>(range.size())};
    loss += model.LossAndGradient(weights, part, 0.5, sum);
  }
  EXPECT_NEAR(loss, model.Loss(weights, samples), 1e-9 * loss);
  for (size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(sum[i], whole[i], 1e-10 * (1 + std::abs(whole[i]))) << i;
}

// What was said to be complete is what it is in the end, over slices too.
TEST(Model, LayersAreCompleteFromTheLastToTheFirst) {
  const Samples samples = RandomSamples(kShape, 300, 9);
  const std::vector<double> weights = RandomWeights<double>(kShape, 10);
  std::vector<double> gradient(weights.size()), complete(weights.size(), -77);
  const std::vector<ModelShape::Layer> layers = kShape.layers();
  std::vector<int> left = {5, 4, 3, 2, 1, 0};
  Model<double>(kShape).LossAndGradient(weights, samples, 1, gradient, [&](int layer) {
    ASSERT_EQ(left.front(), layer);
    left.erase(left.begin());
    int64_t begin = 0;
    for (int before = 0; before < layer; ++before) begin += layers[static_cast<size_t>(before)].count();
    std::copy_n(gradient.begin() + begin, layers[static_cast<size_t>(layer)].count(), complete.begin() + begin);
  });
  EXPECT_TRUE(left.empty());
  EXPECT_EQ(complete, gradient);
}

TEST(Model, FloatFollowsDouble) {
  const ModelShape shape = {.alphabet = 65, .context = 8, .hidden = 33};
  const Samples samples = RandomSamples(shape, 300, 9);
  const std::vector<double> weights = RandomWeights<double>(shape, 10);
  const std::vector<float> narrow(weights.begin(), weights.end());
  const std::vector<double> exact = GradientOf(shape, weights, samples, 1.0 / 300);
  const std::vector<float> gradient = GradientOf(shape, narrow, samples, 1.0f / 300);
  const double expected = Model<double>(shape).Loss(weights, samples);
  EXPECT_NEAR(Model<float>(shape).Loss(narrow, samples), expected, 1e-5 * expected);
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(gradient[i], exact[i], 2e-4) << i;
}

// Of sizes that are no multiples of anything, against the same sums one after the other.
TEST(Portable, ProductsAreTheSameBitsWithAllInstructions) {
  constexpr int kRows = 37, kColumns = 71, kInner = 53;
  const auto fill = [](uint64_t stream, size_t count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(RandomUnit(17, stream, i) - 0.5);
    return values;
  };
  const std::vector<float> a = fill(1, kRows * kInner), b = fill(2, kInner * kColumns), c = fill(3, kRows * kColumns);
  for (const Transpose of_a : {Transpose::kNo, Transpose::kYes}) {
    for (const Transpose of_b : {Transpose::kNo, Transpose::kYes}) {
      for (const bool add : {false, true}) {
        std::vector<float> expected = c;
        for (int i = 0; i < kRows; ++i) {
          for (int j = 0; j < kColumns; ++j) {
            float sum = 0;
            for (int k = 0; k < kInner; ++k) {
              const float left = of_a == Transpose::kYes ? a[k * kRows + i] : a[i * kInner + k];
              sum += left * (of_b == Transpose::kYes ? b[j * kInner + k] : b[k * kColumns + j]);
            }
            expected[i * kColumns + j] = add ? c[i * kColumns + j] + sum : sum;
          }
        }
        for (const Instructions instructions : InstructionsHere()) {
          std::vector<float> got = c;
          PortableProducts(instructions)
              .Multiply(of_a, of_b, kRows, kColumns, kInner, a.data(), b.data(), add, got.data());
          EXPECT_EQ(got, expected) << static_cast<int>(instructions);
        }
      }
    }
  }
}

TEST(Portable, FunctionsAreTheCLibrarysButForRounding) {
  for (int i = 0; i <= 10000; ++i) {
    const float x = -86.9f + static_cast<float>(i) * 0.0174f;
    ASSERT_NEAR(PortableExp(x) / std::exp(static_cast<double>(x)), 1, 2e-7) << x;
    const double y = 1e-3 + i * 0.0317;
    ASSERT_NEAR(PortableLog(y), std::log(y), 4e-16 * (1 + std::abs(std::log(y)))) << y;
    const double t = i / 10000.0;
    ASSERT_NEAR(PortableCosPi(t), std::cos(std::numbers::pi * t), 4e-16) << t;
  }
  EXPECT_EQ(PortableExp(0), 1);
  EXPECT_LT(PortableExp(-1000), 1e-37f);
  EXPECT_TRUE(std::isnan(PortableExp(std::nanf(""))));
  EXPECT_EQ(PortableLog(1), 0);
  EXPECT_EQ(PortableCosPi(0.5), 0);
}

TEST(Model, PortableFollowsBlas) {
  const ModelShape shape = {.alphabet = 65, .context = 8, .hidden = 33};
  const Samples samples = RandomSamples(shape, 300, 9);
  const std::vector<float> weights = RandomWeights<float>(shape, 10);
  std::vector<float> by_blas(weights.size()), portable(weights.size());
  const double expected = Model<float>(shape).LossAndGradient(weights, samples, 1.0f / 300, by_blas);
  EXPECT_NEAR(Model<float>(shape, true).LossAndGradient(weights, samples, 1.0f / 300, portable), expected,
              1e-5 * expected);
  for (size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(portable[i], by_blas[i], 1e-5) << i;
}

TEST(Model, FreshWeightsPredictAlmostEvenly) {
  const ModelShape shape = {.alphabet = 65, .context = 8, .hidden = 64};
  Model<float> model(shape);
  std::vector<float> weights(shape.parameters()), again(weights.size()), other(weights.size());
  model.Initialise(3, weights);
  model.Initialise(3, again);
  model.Initialise(4, other);
  EXPECT_EQ(weights, again);
  EXPECT_NE(weights, other);
  const Samples samples = RandomSamples(shape, 500, 11);
  EXPECT_NEAR(model.Loss(weights, samples) / 500, std::log(65), 0.1);
}

TEST(Model, OneCharacterIsNoSurprise) {
  const ModelShape shape = {.alphabet = 1, .context = 2, .hidden = 8};
  const std::vector<float> weights = RandomWeights<float>(shape, 12);
  EXPECT_EQ(Model<float>(shape).Loss(weights, RandomSamples(shape, 10, 13)), 0);
}

TEST(Model, NoSamplesNoGradient) {
  const std::vector<double> weights = RandomWeights<double>(kShape, 14);
  const std::vector<double> gradient = GradientOf(kShape, weights, Samples{}, 1.0);
  EXPECT_TRUE(std::all_of(gradient.begin(), gradient.end(), [](double g) { return g == 0; }));
}

}  // namespace
}  // namespace char_lm
