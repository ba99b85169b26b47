// What of cudnn_cnn needs no GPU: images and their order, the network as numbers, and what each thread of its kernels
// computes, here thread by thread. And the program, which says so where there is no GPU.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "elementwise.h"
#include "exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "images.h"
#include "nlohmann/json.hpp"
#include "options.h"
#include "random.h"
#include "shapes.h"
#include "support/program.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace cudnn_cnn {
namespace {

using gyre::support::IsOk;
using gyre::support::MatchesStatus;

class IdxTest : public ::testing::Test {
 protected:
  // Sizes as an IDX header has them, then the data.
  std::string Write(const std::string& name, const std::vector<uint8_t>& head, const std::vector<uint32_t>& sizes,
                    size_t bytes, uint8_t first = 0) {
    std::vector<uint8_t> all = head;
    for (const uint32_t size : sizes) {
      for (const int shift : {24, 16, 8, 0}) all.push_back(static_cast<uint8_t>(size >> shift));
    }
    for (size_t i = 0; i < bytes; ++i) all.push_back(static_cast<uint8_t>(first + i));
    const auto path = folder_.path() / name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
    return path.string();
  }

  const gyre::support::TemporaryDirectory folder_;
};

TEST_F(IdxTest, ReadsImagesAndLabels) {
  const std::string images = Write("images", {0, 0, 8, 3}, {3, 8, 9}, 3 * 8 * 9);
  const std::string labels = Write("labels", {0, 0, 8, 1}, {3}, 3, 4);
  const auto read = ReadIdx(images, labels);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->count, 3);
  EXPECT_EQ(read->height, 8);
  EXPECT_EQ(read->width, 9);
  EXPECT_EQ(read->channels, 1);
  EXPECT_EQ(read->classes, 7);
  EXPECT_EQ(read->labels, (std::vector<int32_t>{4, 5, 6}));
  ASSERT_EQ(read->pixels.size(), 216u);
  EXPECT_EQ(read->pixels[100], 100);
  const auto colours = ReadIdx(Write("colours", {0, 0, 8, 4}, {3, 8, 8, 3}, 3 * 8 * 8 * 3), labels);
  ASSERT_THAT(colours, IsOk());
  EXPECT_EQ(colours->channels, 3);
}

TEST_F(IdxTest, SaysWhatIsWrongAndWhere) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kLost = absl::StatusCode::kDataLoss;
  const std::string images = Write("images", {0, 0, 8, 3}, {2, 8, 8}, 128);
  const std::string labels = Write("labels", {0, 0, 8, 1}, {2}, 2);
  ASSERT_THAT(ReadIdx(images, labels), IsOk());
  EXPECT_THAT(ReadIdx(images, folder_.path() / "none"), MatchesStatus(absl::StatusCode::kNotFound, "none"));
  EXPECT_THAT(ReadIdx(Write("z", {0x1f, 0x8b, 8, 0}, {}, 9), labels), MatchesStatus(kInvalid, "z: is compressed"));
  EXPECT_THAT(ReadIdx(Write("t", {1, 0, 8, 3}, {}, 9), labels), MatchesStatus(kInvalid, "t: is no IDX file"));
  EXPECT_THAT(ReadIdx(Write("t", {0, 0}, {}, 0), labels), MatchesStatus(kInvalid, "t: is no IDX file"));
  EXPECT_THAT(ReadIdx(Write("f", {0, 0, 13, 3}, {2, 8, 8}, 512), labels),
              MatchesStatus(kInvalid, "f: has elements of type 13"));
  EXPECT_THAT(ReadIdx(Write("h", {0, 0, 8, 3}, {2, 8}, 0), labels), MatchesStatus(kLost, "h: ends within"));
  EXPECT_THAT(ReadIdx(Write("s", {0, 0, 8, 3}, {2, 8, 8}, 127), labels), MatchesStatus(kLost, "s: has 127 bytes"));
  EXPECT_THAT(ReadIdx(Write("l", {0, 0, 8, 3}, {2, 8, 8}, 129), labels), MatchesStatus(kLost, "l: has 129 bytes"));
  EXPECT_THAT(ReadIdx(Write("o", {0, 0, 8, 3}, {~0u, ~0u, ~0u}, 9), labels), MatchesStatus(kLost, "o: has 9 bytes"));
  EXPECT_THAT(ReadIdx(images, images), MatchesStatus(kInvalid, "has not one dimension"));
  EXPECT_THAT(ReadIdx(images, Write("m", {0, 0, 8, 1}, {3}, 3)), MatchesStatus(kInvalid, "3 labels of 2 images"));
  EXPECT_THAT(ReadIdx(Write("e", {0, 0, 8, 3}, {0, 8, 8}, 0), Write("n", {0, 0, 8, 1}, {0}, 0)),
              MatchesStatus(kInvalid, "e: needs images"));
}

TEST(Images, AreTheSameForAllRanksAndTellTheirClass) {
  constexpr int kCount = 400, kSide = 24;
  const Images images = GenerateImages(7, kCount, kSide);
  EXPECT_EQ(images.pixels, GenerateImages(7, kCount, kSide).pixels);
  EXPECT_NE(images.pixels, GenerateImages(8, kCount, kSide).pixels);
  // The class whose grating has most in common with the first colour, whatever its phase.
  int right = 0;
  std::set<int> seen;
  for (int n = 0; n < kCount; ++n) {
    int best = 0;
    double most = -1;
    for (int k = 0; k < images.classes; ++k) {
      const double angle = std::numbers::pi * k / images.classes, wave = 2 * std::numbers::pi / 6;
      double even = 0, odd = 0;
      for (int i = 0; i < kSide * kSide; ++i) {
        const double at = wave * (std::cos(angle) * (i % kSide) + std::sin(angle) * (i / kSide));
        const double value = images.pixels[static_cast<size_t>((n * kSide * kSide + i) * 3)] - 128.0;
        even += value * std::cos(at);
        odd += value * std::sin(at);
      }
      if (even * even + odd * odd > most) {
        most = even * even + odd * odd;
        best = k;
      }
    }
    right += best == images.labels[static_cast<size_t>(n)] ? 1 : 0;
    seen.insert(images.labels[static_cast<size_t>(n)]);
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_GT(right, kCount * 9 / 10);
}

TEST(Sampler, TakesEachImageOnceAnEpochHoweverManyRanks) {
  constexpr int kCount = 103, kBatch = 12;
  Sampler one(3, kCount, kBatch);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::set<int32_t> seen;
    for (int step = epoch * 8; step < epoch * 8 + 8; ++step) {
      const std::vector<int32_t> whole = one.Draw(step, 0, 1);
      for (const int ranks : {2, 3, 4}) {
        std::vector<int32_t> joined;
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<int32_t> part = Sampler(3, kCount, kBatch).Draw(step, rank, ranks);
          joined.insert(joined.end(), part.begin(), part.end());
        }
        EXPECT_EQ(joined, whole) << ranks << " ranks, step " << step;
      }
      for (const int32_t each : whole) {
        EXPECT_TRUE(seen.insert(each).second) << "twice in epoch " << epoch << ": " << each;
        EXPECT_TRUE(each >= 0 && each < kCount);
      }
    }
    EXPECT_EQ(seen.size(), 96u);
  }
  EXPECT_NE(one.Draw(0, 0, 1), one.Draw(8, 0, 1));
  EXPECT_NE(one.Draw(0, 0, 1), Sampler(4, kCount, kBatch).Draw(0, 0, 1));
}

TEST(Shapes, StagesHalveTheImageAndDoubleTheChannels) {
  const NetworkShape shape = MakeNetworkShape(28, 28, 10, 16, 2);
  ASSERT_EQ(shape.blocks.size(), 6u);
  EXPECT_EQ(shape.features, 64);
  EXPECT_EQ(shape.blocks[0].shortcut.size(), 0u);
  EXPECT_EQ(shape.blocks[2].shortcut.size(), 1u);
  EXPECT_EQ(shape.blocks[2].second.out.height, 14);
  EXPECT_EQ(shape.blocks[4].second.out.height, 7);
  EXPECT_EQ(shape.blocks[5].shortcut.size(), 0u);
  for (const BlockShape& block : shape.blocks) {
    const Extent& through = block.shortcut.empty() ? block.first.in : block.shortcut[0].out;
    EXPECT_EQ(through.elements(), block.second.out.elements()) << block.first.name;
  }
  // Stem; stages of 16, 32, 64 channels with two blocks each, two of them with a shortcut; the last layer.
  const int64_t weights = 9 * 8 * 16 + 4 * 9 * 16 * 16 + (9 * 16 * 32 + 3 * 9 * 32 * 32 + 16 * 32) +
                          (9 * 32 * 64 + 3 * 9 * 64 * 64 + 32 * 64);
  const int64_t norms = 2 * (16 + 4 * 16 + 4 * 32 + 32 + 4 * 64 + 64);
  EXPECT_EQ(shape.parameters(), weights + norms + 65 * 10);
  EXPECT_EQ(shape.convolutions().size(), 15u);
  const NetworkShape odd = MakeNetworkShape(9, 13, 3, 8, 1);
  EXPECT_EQ(odd.blocks[1].second.out.height, 5);
  EXPECT_EQ(odd.blocks[1].shortcut[0].out.width, 7);
  EXPECT_EQ(odd.blocks[2].shortcut[0].out.elements(), odd.blocks[2].second.out.elements());
}

TEST(Schedule, RisesAndFallsToNothing) {
  EXPECT_FLOAT_EQ(LearningRate(0.1f, 0, 100), 0.02f);
  EXPECT_FLOAT_EQ(LearningRate(0.1f, 4, 100), 0.1f);
  EXPECT_LT(LearningRate(0.1f, 99, 100), 1e-4f);
  for (int step = 6; step < 100; ++step) EXPECT_LT(LearningRate(1, step, 100), LearningRate(1, step - 1, 100));
  EXPECT_GT(LearningRate(1, 0, 1), 0);
}

TEST(Weights, AreTheSameEverywhereAndOfTheirVariance) {
  const std::vector<float> weights = InitialWeights(1, 4, 20'000, 50);
  EXPECT_EQ(weights, InitialWeights(1, 4, 20'000, 50));
  EXPECT_NE(weights, InitialWeights(1, 5, 20'000, 50));
  double sum = 0, squares = 0;
  for (const float each : weights) {
    sum += each;
    squares += double{each} * each;
  }
  EXPECT_NEAR(sum / 20'000, 0, 0.01);
  EXPECT_NEAR(squares / 20'000, 2.0 / 50, 0.002);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(FromFloat<Bf16>(1.0f).bits, 0x3f80);
  EXPECT_EQ(FromFloat<Bf16>(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // a tie, to even
  EXPECT_EQ(FromFloat<Bf16>(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(FromFloat<Bf16>(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(ToFloat(FromFloat<Bf16>(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(ToFloat(Bf16{0xc040}), -3.0f);
}

// A unit's normalisation by the kernels' threads, and its gradients.
struct NormUnit {
  Rows r;
  bool relu;
  std::vector<float> x, residual, scale, shift;
  std::vector<float> mean, inverse, y;

  static NormUnit Draw(Rows r, bool relu, uint64_t seed) {
    Random random(seed);
    NormUnit unit{
        .r = r, .relu = relu, .x = {}, .residual = {}, .scale = {}, .shift = {}, .mean = {}, .inverse = {}, .y = {}};
    const auto count = static_cast<size_t>(r.rows * r.channels);
    for (size_t i = 0; i < count; ++i) {
      unit.x.push_back(static_cast<float>(random.Normal() * 2 + static_cast<double>(i % 3)));
      unit.residual.push_back(static_cast<float>(random.Normal()));
    }
    for (int c = 0; c < r.channels; ++c) {
      unit.scale.push_back(static_cast<float>(1 + 0.3 * random.Normal()));
      unit.shift.push_back(static_cast<float>(random.Normal()));
    }
    return unit;
  }

  Norm norm() const {
    return {.mean = mean.data(), .inverse = inverse.data(), .scale = scale.data(), .shift = shift.data()};
  }

  void Forward() {
    std::vector<float> sums(static_cast<size_t>(2 * r.threads()));
    mean.assign(scale.size(), 0);
    inverse.assign(scale.size(), 0);
    y.assign(x.size(), 0);
    for (int64_t thread = 0; thread < r.threads(); ++thread) SumChunk(thread, r, x.data(), sums.data());
    for (int64_t c = 0; c < r.channels; ++c) {
      FinishStatistics(c, r, TotalOf(c, r, sums.data()), mean.data(), inverse.data());
    }
    for (int64_t i = 0; i < std::ssize(x); ++i) {
      Normalise(i, r.channels, x.data(), norm(), residual.data(), relu, y.data());
    }
  }

  // By definition, in double precision: the sum of weights times results.
  double Objective(const std::vector<double>& weights) const {
    double total = 0;
    for (int c = 0; c < r.channels; ++c) {
      double average = 0, variance = 0;
      const auto at = [&](int64_t row) { return static_cast<size_t>(row * r.channels + c); };
      for (int64_t row = 0; row < r.rows; ++row) average += x[at(row)] / static_cast<double>(r.rows);
      for (int64_t row = 0; row < r.rows; ++row) {
        variance += (x[at(row)] - average) * (x[at(row)] - average) / static_cast<double>(r.rows);
      }
      for (int64_t row = 0; row < r.rows; ++row) {
        const auto channel = static_cast<size_t>(c);
        const double value =
            (x[at(row)] - average) / std::sqrt(variance + 1e-5) * scale[channel] + shift[channel] + residual[at(row)];
        total += weights[at(row)] * (relu ? std::max(value, 0.0) : value);
      }
    }
    return total;
  }
};

TEST(Normalisation, ResultsAndGradientsAreThoseOfItsDefinition) {
  for (const Rows r : {Rows{37, 5, 4}, Rows{8, 3, 8}, Rows{64, 1, 1}}) {
    for (const bool relu : {false, true}) {
      NormUnit unit = NormUnit::Draw(r, relu, static_cast<uint64_t>(r.rows) + (relu ? 1 : 0));
      unit.Forward();
      Random random(99);
      std::vector<double> weights(unit.x.size());
      for (double& each : weights) each = random.Normal();
      double total = 0;
      for (size_t i = 0; i < weights.size(); ++i) total += weights[i] * unit.y[i];
      EXPECT_NEAR(total, unit.Objective(weights), 1e-3);

      std::vector<float> dy(weights.begin(), weights.end()), dx(unit.x.size());
      std::vector<float> sums(static_cast<size_t>(2 * r.threads())), dscale(unit.scale.size()), dshift(dscale);
      for (int64_t thread = 0; thread < r.threads(); ++thread) {
        SumGradientChunk(thread, r, unit.x.data(), relu ? unit.y.data() : nullptr, dy.data(), unit.mean.data(),
                         unit.inverse.data(), sums.data());
      }
      for (int64_t c = 0; c < r.channels; ++c) {
        FinishGradients(c, TotalOf(c, r, sums.data()), dscale.data(), dshift.data());
      }
      for (int64_t i = 0; i < std::ssize(dx); ++i) {
        NormaliseBackward(i, r, unit.x.data(), dy.data(), unit.norm(), dscale.data(), dshift.data(), dx.data());
      }
      // By differences, where none of them crosses the edge of relu.
      const auto check = [&](std::vector<float>& values, const std::vector<float>& gradient, const char* what) {
        for (size_t i = 0; i < values.size(); ++i) {
          constexpr float kStep = 1.0f / 1024;
          const float before = values[i];
          values[i] = before + kStep;
          const double above = unit.Objective(weights);
          values[i] = before - kStep;
          const double below = unit.Objective(weights);
          values[i] = before;
          EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 0.02) << what << " " << i << ", relu " << relu;
        }
      };
      check(unit.x, dx, "x");
      check(unit.scale, dscale, "scale");
      check(unit.shift, dshift, "shift");
      check(unit.residual, dy, "residual");
    }
  }
}

// Each chunk's sums once, also where there are more chunks than lanes, or fewer.
TEST(Normalisation, AddsUpAllChunksOfAChannel) {
  for (const int chunks : {1, 31, 32, 75, 2048}) {
    const Rows r{.rows = 5000, .channels = 3, .chunks = chunks};
    std::vector<float> sums(static_cast<size_t>(2 * r.threads()));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(i);
    for (int64_t c = 0; c < r.channels; ++c) {
      Pair expected = {0, 0};
      for (int64_t k = 0; k < chunks; ++k) {
        expected = expected + Pair{static_cast<double>(6 * k + c), static_cast<double>(6 * k + 3 + c)};
      }
      const Pair total = TotalOf(c, r, sums.data());
      EXPECT_EQ(total.first, expected.first) << chunks;
      EXPECT_EQ(total.second, expected.second) << chunks;
    }
  }
}

TEST(Normalisation, WorksOnBf16) {
  const Rows r{.rows = 50, .channels = 2, .chunks = 7};
  NormUnit unit = NormUnit::Draw(r, true, 5);
  std::vector<Bf16> x(unit.x.size()), y(x);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = FromFloat<Bf16>(unit.x[i]);
    unit.x[i] = ToFloat(x[i]);
    unit.residual[i] = 0;
  }
  unit.Forward();
  for (int64_t i = 0; i < std::ssize(x); ++i) {
    Normalise<Bf16>(i, r.channels, x.data(), unit.norm(), nullptr, true, y.data());
    EXPECT_EQ(y[static_cast<size_t>(i)].bits, FromFloat<Bf16>(unit.y[static_cast<size_t>(i)]).bits);
  }
}

TEST(Batch, IsLoadedByIndexAndFilledUpWithZeros) {
  const std::vector<uint8_t> pixels = {0, 32, 64, 96, 128, 160, 192, 224, 255, 1, 2, 3};  // 3 images of 2 x 2 channels
  const std::vector<int32_t> indices = {2, 0};
  std::vector<float> batch(2 * 2 * 8, -1);
  for (int64_t i = 0; i < std::ssize(batch); ++i) LoadPixel(i, pixels.data(), indices.data(), 2, 2, 8, batch.data());
  EXPECT_EQ(batch[0], (255 - 128) / 64.0f);
  EXPECT_EQ(batch[9], (3 - 128) / 64.0f);
  EXPECT_EQ(batch[16], -2);
  EXPECT_EQ(batch[25], -0.5f);
  EXPECT_EQ(std::ranges::count(batch, 0.0f), 24);
}

TEST(Pool, IsTheMeanAndGivesItBack) {
  std::vector<float> x(2 * 3 * 2), features(4), dx(x.size());  // 2 images of 3 rows, 2 channels
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  for (int64_t i = 0; i < 4; ++i) Pool(i, 3, 2, x.data(), features.data());
  EXPECT_EQ(features, (std::vector<float>{2, 3, 8, 9}));
  for (int64_t i = 0; i < std::ssize(dx); ++i) PoolBackward(i, 3, 2, features.data(), dx.data());
  EXPECT_FLOAT_EQ(dx[5], 1);
  EXPECT_FLOAT_EQ(dx[6], 8.0f / 3);
}

TEST(Loss, IsTheCrossEntropyOfTheSoftmaxAndHasItsGradient) {
  constexpr int kBatch = 3, kClasses = 4;
  const std::vector<int32_t> labels = {1, 0, 3, 2}, indices = {3, 0, 2};
  std::vector<double> logits;
  Random random(1);
  for (int i = 0; i < kBatch * kClasses; ++i) logits.push_back(3 * random.Normal());
  logits[2 * kClasses + 3] = 800;  // no overflow; sure of what is right
  const auto loss = [&](const std::vector<double>& of) {
    double total = 0;
    for (int n = 0; n < kBatch; ++n) {
      const double* row = &of[static_cast<size_t>(n * kClasses)];
      const double most = *std::max_element(row, row + kClasses);
      double sum = 0;
      for (int k = 0; k < kClasses; ++k) sum += std::exp(row[k] - most);
      total += std::log(sum) + most - row[labels[static_cast<size_t>(indices[static_cast<size_t>(n)])]];
    }
    return total / kBatch;
  };
  std::vector<double> gradient = logits, losses(kBatch);
  std::vector<int32_t> right(kBatch);
  for (int64_t n = 0; n < kBatch; ++n) {
    SoftmaxLoss(n, kBatch, kClasses, labels.data(), indices.data(), gradient.data(), losses.data(), right.data());
  }
  EXPECT_NEAR((losses[0] + losses[1] + losses[2]) / kBatch, loss(logits), 1e-12);
  EXPECT_EQ(right[2], 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    std::vector<double> above = logits, below = logits;
    above[i] += 1e-5;
    below[i] -= 1e-5;
    EXPECT_NEAR(gradient[i], (loss(above) - loss(below)) / 2e-5, 1e-6) << i;
  }
}

TEST(Update, IsMomentumWithDecayOfEitherGradient) {
  for (const bool narrow : {false, true}) {
    std::vector<float> weight = {1, -2}, velocity = {0.5f, 0}, wide = {2, 4};
    std::vector<Bf16> narrowed = {FromFloat<Bf16>(2), FromFloat<Bf16>(4)}, copy(2);
    const Trained trained{.weight = weight.data(),
                          .velocity = velocity.data(),
                          .gradient = narrow ? static_cast<const void*>(narrowed.data()) : wide.data(),
                          .narrow = narrow ? copy.data() : nullptr,
                          .count = 2,
                          .decay = 0.25f,
                          .narrow_gradient = narrow};
    for (int64_t i = 0; i < 2; ++i) Update(i, trained, 0.5f, 0.5f);
    EXPECT_EQ(velocity, (std::vector<float>{2.5f, 3.5f}));
    EXPECT_EQ(weight, (std::vector<float>{-0.25f, -3.75f}));
    if (narrow) {
      EXPECT_EQ(ToFloat(copy[1]), -3.75f);
    }
  }
}

TEST(CommandLine, TakesWhatMakesSense) {
  const auto parse = [](std::vector<const char*> arguments, Options& options) {
    arguments.insert(arguments.begin(), "cudnn_cnn");
    return ParseOptions(static_cast<int>(arguments.size()), arguments.data(), options);
  };
  Options options;
  EXPECT_EQ(parse({"--precision", "bf16", "--no-overlap", "--width", "32", "--json"}, options), std::nullopt);
  EXPECT_EQ(options.precision, Precision::kBf16);
  EXPECT_FALSE(options.overlap);
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.width, 32);
  EXPECT_EQ(parse({"--help"}, options), 0);
  for (const std::vector<const char*>& wrong : {std::vector<const char*>{"--precision", "f64"},
                                                {"--width", "12"},
                                                {"--steps", "0"},
                                                {"--idx-images", "x"},
                                                {"--idx-images", "x", "--idx-labels", "y", "--side", "9"},
                                                {"--nonsense"}}) {
    EXPECT_EQ(parse(wrong, options), kExitUsage) << wrong[0];
  }
}

class ProgramTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ProgramTest, LearnsOnAGpuOrSaysThatThereIsNone) {
  const std::string path = CUDNN_CNN_PATH;
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "cudnn_cnn is not built: scripts/test --all does, with CUDA and cuDNN";
  gyre::support::Program program({path, "--steps", "40", "--batch", "32", "--images", "256", "--width", "16",
                                  "--blocks", "1", "--precision", GetParam(), "--json"});
  // What comes first of all loads cuDNN and cuBLAS, which are gigabytes, and has plans made.
  ASSERT_TRUE(program.WaitFor(std::chrono::seconds(120))) << program.output();
  if (program.exit_code() == kExitNoGpu) {
    EXPECT_EQ(program.out(), "");
    EXPECT_THAT(program.err(), ::testing::StartsWith("cudnn_cnn: UNAVAILABLE: looking for GPUs: "));
    GTEST_SKIP() << program.err();
  }
  ASSERT_EQ(program.exit_code(), 0) << program.output();
  const size_t at = program.out().find("{\"ranks\"");
  ASSERT_NE(at, std::string::npos) << program.output();
  const auto line = nlohmann::json::parse(program.out().substr(at, program.out().find('\n', at) - at));
  EXPECT_LT(line["last_loss"].get<double>(), 0.8 * line["first_loss"].get<double>()) << program.output();
  EXPECT_TRUE(line["replicas_identical"].get<bool>());
}

INSTANTIATE_TEST_SUITE_P(All, ProgramTest, ::testing::Values("f32", "bf16"));

}  // namespace
}  // namespace cudnn_cnn
