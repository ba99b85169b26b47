// Every rule against a plain float64 rendering of its formula, and the state's way to bytes and back.
#include "gyre/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace gyre {
namespace {

// One weight, updated in double as the formulas in gyre/optimizer.h read, without any rearrangement.
struct Reference {
  double weight = 0, first = 0, second = 0;
  int step = 0;

  void Update(const Sgd& rule, double g) { weight -= rule.learning_rate * (g + rule.weight_decay * weight); }

  void Update(const Momentum& rule, double g) {
    g += rule.weight_decay * weight;
    first = rule.momentum * first + g;
    weight -= rule.learning_rate * (rule.nesterov ? g + rule.momentum * first : first);
  }

  void Update(const Adam& rule, double g) {
    ++step;
    g += rule.weight_decay * weight;
    first = rule.beta1 * first + (1.0 - rule.beta1) * g;
    second = rule.beta2 * second + (1.0 - rule.beta2) * g * g;
    const double mean = first / (1.0 - std::pow(rule.beta1, step));
    const double variance = second / (1.0 - std::pow(rule.beta2, step));
    weight -= rule.learning_rate * mean / (std::sqrt(variance) + rule.epsilon);
  }

  void Update(const Adagrad& rule, double g) {
    g += rule.weight_decay * weight;
    second += g * g;
    weight -= rule.learning_rate * g / (std::sqrt(second) + rule.epsilon);
  }
};

std::vector<float> Random(size_t count, int seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

Optimizer Make(const OptimizerConfig& config, std::vector<int64_t> counts) {
  auto optimizer = Optimizer::Create(config, counts);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return *std::move(optimizer);
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_TRUE(a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct Case {
  std::string name;
  OptimizerConfig config;
  int floats_a_weight;  // of state
};

class EveryRule : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Rules, EveryRule,
    testing::Values(Case{"Sgd", Sgd{.learning_rate = 0.1f}, 0},
                    Case{"SgdDecay", Sgd{.learning_rate = 0.1f, .weight_decay = 0.3f}, 0},
                    Case{"HeavyBall", Momentum{.learning_rate = 0.05f, .momentum = 0.8f}, 1},
                    Case{"HeavyBallDecay", Momentum{.learning_rate = 0.05f, .weight_decay = 0.2f}, 1},
                    Case{"Nesterov", Momentum{.learning_rate = 0.05f, .momentum = 0.8f, .nesterov = true}, 1},
                    Case{"NesterovDecay", Momentum{.nesterov = true, .weight_decay = 0.2f}, 1},
                    Case{"Adam", Adam{.learning_rate = 0.02f}, 2},
                    Case{"AdamDecay", Adam{.beta1 = 0.7f, .beta2 = 0.95f, .epsilon = 0.01f, .weight_decay = 0.1f}, 2},
                    Case{"Adagrad", Adagrad{.learning_rate = 0.1f}, 1},
                    Case{"AdagradDecay", Adagrad{.epsilon = 0.01f, .initial_accumulator = 0.5f, .weight_decay = 0.1f},
                         1}),
    [](const auto& info) { return info.param.name; });

TEST_P(EveryRule, FollowsTheFormula) {
  for (size_t count : {1, 2, 3, 4, 5, 7, 15, 16, 17, 31, 33, 1000, 1027}) {
    Optimizer optimizer = Make(GetParam().config, {static_cast<int64_t>(count)});
    std::vector<float> weights = Random(count, 1);
    std::vector<Reference> reference(count);
    for (size_t i = 0; i < count; ++i) reference[i].weight = weights[i];
    if (const auto* adagrad = std::get_if<Adagrad>(&GetParam().config)) {
      for (Reference& r : reference) r.second = adagrad->initial_accumulator;
    }
    for (int step = 0; step < 20; ++step) {
      const std::vector<float> gradient = Random(count, 100 + step);
      ASSERT_TRUE(optimizer.Step(0, weights, gradient).ok());
      for (size_t i = 0; i < count; ++i) {
        std::visit([&](const auto& rule) { reference[i].Update(rule, gradient[i]); }, GetParam().config);
        ASSERT_NEAR(weights[i], reference[i].weight, 2e-5 * (1 + std::abs(reference[i].weight)))
            << "weight " << i << " of " << count << " at step " << step;
      }
    }
  }
}

TEST_P(EveryRule, LongRunsStayOnTheFormula) {  // bias corrections fade, accumulators grow
  Optimizer optimizer = Make(GetParam().config, {3});
  std::vector<float> weights = {1.0f, -2.0f, 0.5f};
  std::vector<Reference> reference(3);
  for (size_t i = 0; i < 3; ++i) reference[i].weight = weights[i];
  if (const auto* adagrad = std::get_if<Adagrad>(&GetParam().config)) {
    for (Reference& r : reference) r.second = adagrad->initial_accumulator;
  }
  for (int step = 0; step < 5000; ++step) {
    const std::vector<float> gradient = Random(3, step);
    ASSERT_TRUE(optimizer.Step(0, weights, gradient).ok());
    for (size_t i = 0; i < 3; ++i) {
      std::visit([&](const auto& rule) { reference[i].Update(rule, gradient[i]); }, GetParam().config);
    }
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(weights[i], reference[i].weight, 2e-3) << i;
}

TEST_P(EveryRule, ZeroElementsAreFine) {
  Optimizer optimizer = Make(GetParam().config, {0});
  EXPECT_TRUE(optimizer.Step(0, {}, {}).ok());
  EXPECT_EQ(optimizer.state_bytes(), 0);
  EXPECT_TRUE(optimizer.Restore(optimizer.Save()).ok());
}

TEST_P(EveryRule, StateSize) {
  Optimizer optimizer = Make(GetParam().config, {5, 0, 7});
  EXPECT_EQ(optimizer.buffers(), 3);
  EXPECT_EQ(optimizer.state_bytes(), GetParam().floats_a_weight * 12 * 4);
}

TEST_P(EveryRule, SlicingDoesNotChangeBits) {  // a vector loop's tail computes what its body does
  std::vector<float> whole = Random(101, 1), parts = whole;
  Optimizer one = Make(GetParam().config, {101}), two = Make(GetParam().config, {37, 64});
  for (int step = 0; step < 10; ++step) {
    const std::vector<float> gradient = Random(101, 200 + step);
    ASSERT_TRUE(one.Step(0, whole, gradient).ok());
    ASSERT_TRUE(two.Step(1, std::span(parts).subspan(37), std::span(gradient).subspan(37)).ok());
    ASSERT_TRUE(two.Step(0, std::span(parts).first(37), std::span(gradient).first(37)).ok());
  }
  ExpectSameBits(whole, parts);
}

TEST_P(EveryRule, SavedAndRestoredGoesOnAlike) {
  Optimizer first = Make(GetParam().config, {19, 6});
  std::vector<float> a = Random(19, 1), b = Random(6, 2);
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(first.Step(0, a, Random(19, 300 + step)).ok());
    if (step % 2 == 0) {  // so that the step counts differ
      ASSERT_TRUE(first.Step(1, b, Random(6, 400 + step)).ok());
    }
  }
  Optimizer second = Make(GetParam().config, {19, 6});
  ASSERT_TRUE(second.Restore(first.Save()).ok());
  EXPECT_EQ(second.Save(), first.Save());
  std::vector<float> a2 = a, b2 = b;
  for (int step = 5; step < 10; ++step) {
    ASSERT_TRUE(first.Step(0, a, Random(19, 300 + step)).ok());
    ASSERT_TRUE(first.Step(1, b, Random(6, 400 + step)).ok());
    ASSERT_TRUE(second.Step(0, a2, Random(19, 300 + step)).ok());
    ASSERT_TRUE(second.Step(1, b2, Random(6, 400 + step)).ok());
  }
  ExpectSameBits(a, a2);
  ExpectSameBits(b, b2);
}

TEST_P(EveryRule, DamagedStateIsRefusedAndChangesNothing) {
  Optimizer source = Make(GetParam().config, {9});
  std::vector<float> weights = Random(9, 1);
  ASSERT_TRUE(source.Step(0, weights, Random(9, 2)).ok());
  const std::vector<std::byte> good = source.Save();
  Optimizer target = Make(GetParam().config, {9});
  const std::vector<std::byte> before = target.Save();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(target.Restore(std::span(good).first(length)).code(), absl::StatusCode::kDataLoss) << length;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x10};
    EXPECT_EQ(target.Restore(bad).code(), absl::StatusCode::kDataLoss) << i;
  }
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 4);
  EXPECT_EQ(target.Restore(longer).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(target.Save(), before);
  EXPECT_TRUE(target.Restore(good).ok());
}

TEST(Optimizer, StateOfAnotherKindIsRefused) {
  Optimizer adam = Make(Adam{}, {4, 5});
  Optimizer momentum = Make(Momentum{}, {4, 5});
  EXPECT_EQ(adam.Restore(momentum.Save()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(adam.Restore(Make(Adam{}, {4}).Save()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(adam.Restore(Make(Adam{}, {4, 6}).Save()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(adam.Restore(Make(Adam{}, {5, 4}).Save()).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Optimizer, RefusesHyperparametersOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const std::vector<OptimizerConfig> bad = {Sgd{.learning_rate = -0.1f},
                                            Sgd{.learning_rate = kNan},
                                            Sgd{.learning_rate = kInf},
                                            Sgd{.weight_decay = -1},
                                            Sgd{.weight_decay = kNan},
                                            Momentum{.momentum = 1},
                                            Momentum{.momentum = -0.1f},
                                            Momentum{.momentum = kNan},
                                            Momentum{.learning_rate = -1},
                                            Momentum{.weight_decay = kInf},
                                            Adam{.beta1 = 1},
                                            Adam{.beta1 = -0.1f},
                                            Adam{.beta2 = 1.5f},
                                            Adam{.beta2 = kNan},
                                            Adam{.epsilon = 0},
                                            Adam{.epsilon = kInf},
                                            Adam{.weight_decay = -1},
                                            Adagrad{.epsilon = 0},
                                            Adagrad{.initial_accumulator = -1},
                                            Adagrad{.initial_accumulator = kNan},
                                            Adagrad{.learning_rate = kNan}};
  const std::array<int64_t, 1> counts = {3};
  for (size_t i = 0; i < bad.size(); ++i) {
    const auto optimizer = Optimizer::Create(bad[i], counts);
    EXPECT_EQ(optimizer.status().code(), absl::StatusCode::kInvalidArgument) << "config " << i;
  }
  const auto named = Optimizer::Create(Adam{.beta2 = 1.5f}, counts);
  EXPECT_NE(std::string(named.status().message()).find("beta2 is 1.5"), std::string::npos) << named.status();
  const std::array<int64_t, 2> negative = {3, -1};
  EXPECT_EQ(Optimizer::Create(Sgd{}, negative).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Optimizer, RefusesWrongBuffersAndCounts) {
  Optimizer optimizer = Make(Sgd{}, {4});
  std::vector<float> four(4, 1.0f), five(5, 1.0f);
  EXPECT_EQ(optimizer.Step(-1, four, four).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(optimizer.Step(1, four, four).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(optimizer.Step(0, five, five).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(optimizer.Step(0, four, five).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(four, std::vector<float>(4, 1.0f));
}

// All rows at once are a dense step; some rows are the dense step of an optimizer that has those alone.
TEST_P(EveryRule, RowsAreUpdatedAsIfAlone) {
  constexpr int64_t kRows = 5, kWidth = 7;
  Optimizer dense = Make(GetParam().config, {kRows * kWidth}), by_rows = dense,
            alone = Make(GetParam().config, {kWidth});
  std::vector<float> weights = Random(kRows * kWidth, 1), same = weights;
  const std::vector<float> gradient = Random(kRows * kWidth, 2);
  const std::vector<int64_t> all = {0, 1, 2, 3, 4}, one = {3};
  ASSERT_TRUE(dense.Step(0, weights, gradient).ok());
  ASSERT_TRUE(by_rows.StepRows(0, same, kRows, {all, gradient}).ok());
  ExpectSameBits(weights, same);
  std::vector<float> row = Random(kWidth, 3);
  Optimizer some = Make(GetParam().config, {kRows * kWidth});
  std::vector<float> others(kRows * kWidth, 0.25f), expected = others;
  std::ranges::copy(row, others.begin() + 3 * kWidth);
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> slope = Random(kWidth, 10 + step);
    ASSERT_TRUE(alone.Step(0, row, slope).ok());
    ASSERT_TRUE(some.StepRows(0, others, kRows, {one, slope}).ok());
  }
  std::ranges::copy(row, expected.begin() + 3 * kWidth);
  ExpectSameBits(others, expected);
}

TEST(Optimizer, RefusesWrongRows) {
  Optimizer optimizer = Make(Sgd{}, {12});
  std::vector<float> weights(12, 1.0f), values(6);
  const auto step = [&](std::vector<int64_t> rows, int64_t of) {
    return std::string(optimizer.StepRows(0, weights, of, {rows, values}).message());
  };
  EXPECT_THAT(step({0, 4}, 4), testing::HasSubstr("row 4 after row 0"));
  EXPECT_THAT(step({2, 2}, 4), testing::HasSubstr("row 2 after row 2"));
  EXPECT_THAT(step({-1, 2}, 4), testing::HasSubstr("row -1"));
  EXPECT_THAT(step({0}, 4), testing::HasSubstr("1 rows of 6"));
  EXPECT_THAT(step({0, 1}, 5), testing::HasSubstr("in 5 rows"));
  EXPECT_EQ(weights, std::vector<float>(12, 1.0f));
  EXPECT_EQ(step({0, 3}, 4), "");
}

TEST(Optimizer, LearningRateChanges) {
  Optimizer optimizer = Make(Sgd{.learning_rate = 0.5f}, {1});
  std::vector<float> weight = {1.0f};
  const std::vector<float> gradient = {1.0f};
  ASSERT_TRUE(optimizer.Step(0, weight, gradient).ok());
  EXPECT_EQ(weight[0], 0.5f);
  ASSERT_TRUE(optimizer.SetLearningRate(0.25f).ok());
  EXPECT_EQ(optimizer.learning_rate(), 0.25f);
  ASSERT_TRUE(optimizer.Step(0, weight, gradient).ok());
  EXPECT_EQ(weight[0], 0.25f);
  EXPECT_EQ(optimizer.SetLearningRate(-1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(optimizer.SetLearningRate(std::numeric_limits<float>::quiet_NaN()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(optimizer.learning_rate(), 0.25f);
}

TEST(Optimizer, UnseenWeightsStayWhereTheyAre) {  // a zero gradient from the start moves nothing, in any rule
  for (const OptimizerConfig& config :
       {OptimizerConfig(Sgd{}), OptimizerConfig(Momentum{}), OptimizerConfig(Adam{}), OptimizerConfig(Adagrad{})}) {
    Optimizer optimizer = Make(config, {6});
    std::vector<float> weights = Random(6, 1);
    const std::vector<float> before = weights, zero(6, 0.0f);
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(optimizer.Step(0, weights, zero).ok());
    ExpectSameBits(weights, before);
  }
}

}  // namespace
}  // namespace gyre
