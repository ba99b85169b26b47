#include "compression/dgc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::compression {
namespace {

using support::IsOk;
using support::MatchesStatus;
using support::Mutator;

constexpr double kLink = 1.25e8;

std::vector<float> Gradient(Mutator& random, int64_t count) {
  std::vector<float> gradient(count);
  for (float& value : gradient) value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
  return gradient;
}

std::vector<float> Sent(Codec& codec, std::span<const float> gradient) {
  std::vector<std::byte> payload;
  std::vector<float> sent(gradient.size());
  EXPECT_THAT(codec.Encode(gradient, 0, payload), IsOk());
  EXPECT_THAT(Decoder().DecodeAdd(payload, 1, sent), IsOk());
  return sent;
}

TEST(DgcSchedule, WarmsUpByStages) {
  const Dgc options{.sparsity = 0.999, .warmup = {0.75, 0.9375}, .warmup_steps = 10};
  EXPECT_EQ(SparsityAt(options, 0), 0.75);
  EXPECT_EQ(SparsityAt(options, 9), 0.75);
  EXPECT_EQ(SparsityAt(options, 10), 0.9375);
  EXPECT_EQ(SparsityAt(options, 20), 0.999);
  EXPECT_EQ(SparsityAt(Dgc{}, 0), 0.999);
}

TEST(DgcSchedule, ClipsToTheRootOfTheRanks) {
  const Dgc options{.clip = 2};
  EXPECT_FLOAT_EQ(ClipScale(options, 10, 4), 0.1f);  // to 2 / sqrt(4)
  EXPECT_EQ(ClipScale(options, 0.5, 4), 1);
  EXPECT_EQ(ClipScale(Dgc{}, 1e9, 4), 1);
}

// Density 1 is momentum SGD.
TEST(DgcTensor, SendsWhatMomentumSgdWouldApplyWhereAllIsSent) {
  for (const bool nesterov : {false, true}) {
    Mutator random(1);
    DgcTensor tensor(Dgc{.sparsity = 0, .momentum = 0.9f, .nesterov = nesterov}, 100, kLink);
    std::vector<double> velocity(100);
    for (int step = 0; step < 30; ++step) {
      const auto gradient = Gradient(random, 100);
      const auto sent = Sent(tensor, gradient);
      for (int i = 0; i < 100; ++i) {
        velocity[i] = 0.9 * velocity[i] + gradient[i];
        ASSERT_NEAR(sent[i], nesterov ? 0.9 * velocity[i] + gradient[i] : velocity[i], 1e-5) << step;
      }
    }
  }
}

TEST(DgcTensor, MasksBothAccumulatorsExactlyWhereItSent) {
  for (const bool masked : {true, false}) {
    Mutator random(2);
    DgcTensor tensor(Dgc{.sparsity = 0.9, .momentum = 0.9f, .factor_masking = masked}, 1000, kLink);
    for (int step = 0; step < 20; ++step) {
      const auto sent = Sent(tensor, Gradient(random, 1000));
      int64_t number = 0;
      for (int i = 0; i < 1000; ++i) {
        if (sent[i] == 0) continue;
        ++number;
        EXPECT_EQ(tensor.state()[1][i], 0.0f);
        if (masked) {
          EXPECT_EQ(tensor.state()[0][i], 0.0f);
        } else {
          EXPECT_NE(tensor.state()[0][i], 0.0f);
        }
      }
      EXPECT_EQ(number, 100);
    }
  }
}

// Over 1,000 steps of random shapes and options: what was sent and what is kept are, element by element and bit by bit,
// what u and v are without sending; and without momentum, of whole numbers, all that was sent and what is kept is all
// that there was.
TEST(DgcTensor, ConservesEverythingBitByBit) {
  Mutator random(31);
  for (int shape = 0; shape < 50; ++shape) {
    const auto count = static_cast<int64_t>(random.OneIn(4) ? 1 + random.Below(40) : 1 + random.Below(9000));
    const bool whole = random.OneIn(2);
    const Dgc options{.sparsity = static_cast<double>(1 + random.Below(998)) * 1e-3,
                      .momentum = whole ? 0 : 0.9f,
                      .nesterov = !whole && random.OneIn(2),
                      .factor_masking = random.OneIn(2)};
    DgcTensor tensor(options, count, kLink);
    std::vector<float> u(static_cast<size_t>(count)), v(u.size()), given(u.size()), arrived(u.size());
    for (int step = 0; step < 20; ++step) {
      std::vector<float> gradient = Gradient(random, count);
      for (float& value : gradient) value = whole ? std::round(1000 * value) : value;
      const auto sent = Sent(tensor, gradient);
      int64_t number = 0;
      for (size_t i = 0; i < u.size(); ++i) {
        const float g = gradient[i];
        u[i] = options.nesterov ? options.momentum * (u[i] + g) : options.momentum * u[i] + g;
        v[i] = options.nesterov ? v[i] + u[i] + g : v[i] + u[i];
        number += sent[i] != 0 ? 1 : 0;
        if (sent[i] != 0) {
          ASSERT_EQ(sent[i], v[i]) << shape << " " << step << " " << i;
          v[i] = 0;
          if (options.factor_masking) u[i] = 0;
        }
        ASSERT_EQ(std::bit_cast<uint32_t>(tensor.state()[0][i]), std::bit_cast<uint32_t>(u[i]));
        ASSERT_EQ(std::bit_cast<uint32_t>(tensor.state()[1][i]), std::bit_cast<uint32_t>(v[i]));
        given[i] += g;
        arrived[i] += sent[i];
        ASSERT_TRUE(!whole || arrived[i] + tensor.state()[1][i] == given[i]) << shape << " " << step << " " << i;
      }
      EXPECT_LE(number, KeptCount(options.sparsity, count));
    }
  }
}

TEST(DgcTensor, KeepsRoundingErrors) {
  Mutator random(3);
  DgcTensor tensor(Dgc{.sparsity = 0.5, .momentum = 0, .values = ValueType::kF16}, 64, kLink);
  const auto gradient = Gradient(random, 64);
  const auto sent = Sent(tensor, gradient);
  int errors = 0;
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(static_cast<double>(sent[i]) + tensor.state()[1][i], gradient[i]);
    errors += sent[i] != 0 && tensor.state()[1][i] != 0 ? 1 : 0;
  }
  EXPECT_GT(errors, 16);
}

TEST(DgcTensor, DropsOrRefusesWhatIsNotFinite) {
  std::vector<float> gradient(100, 1.0f);
  gradient[7] = std::nanf("");
  gradient[8] = -std::numeric_limits<float>::infinity();
  DgcTensor drops(Dgc{.sparsity = 0.5}, 100, kLink);
  for (const float value : Sent(drops, gradient)) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(drops.non_finite(), 2);
  for (const auto& array : drops.state()) {
    EXPECT_TRUE(std::ranges::all_of(array, [](float value) { return std::isfinite(value); }));
  }

  DgcTensor refuses(Dgc{.sparsity = 0.5, .non_finite = Dgc::NonFinite::kRefuse}, 100, kLink);
  std::vector<std::byte> payload;
  EXPECT_THAT(refuses.Encode(gradient, 0, payload),
              MatchesStatus(absl::StatusCode::kFailedPrecondition, "2 elements of the gradient"));
  for (const auto& array : refuses.state()) {
    EXPECT_TRUE(std::ranges::all_of(array, [](float value) { return value == 0; }));
  }
}

std::vector<DgcModel::Tensor> SmallModel() {
  return {{"conv.weight", {16, 16, 3, 3}}, {"conv.bias", {2000}}, {"tiny", {2, 3}}, {"embedding.weight", {100, 20}}};
}

TEST(DgcModel, ExcludesByDimensionSizeAndName) {
  const auto model = DgcModel::Create(Dgc{.dense_names = {"embed"}}, SmallModel(), 4, kLink);
  ASSERT_THAT(model, IsOk());
  EXPECT_FALSE(model->dense(0));
  EXPECT_TRUE(model->dense(1));  // one dimension
  EXPECT_TRUE(model->dense(2));  // 6 elements
  EXPECT_TRUE(model->dense(3));  // its name
}

TEST(DgcModel, ScalesByTheNormAndNamesTheTensor) {
  auto model =
      DgcModel::Create(Dgc{.momentum = 0, .clip = 1, .non_finite = Dgc::NonFinite::kRefuse}, SmallModel(), 4, kLink);
  ASSERT_THAT(model, IsOk());
  model->BeginStep(0, 5);  // to 1 / sqrt(4): a tenth
  std::vector<std::byte> payload;
  ASSERT_THAT(model->Encode(2, std::vector<float>(6, 1.0f), payload), IsOk());
  std::vector<float> sent(6);
  ASSERT_THAT(Decoder().DecodeAdd(payload, 1, sent), IsOk());
  EXPECT_EQ(sent, std::vector<float>(6, 0.1f));
  EXPECT_THAT(model->Encode(2, std::vector<float>(6, std::nanf("")), payload),
              MatchesStatus(absl::StatusCode::kFailedPrecondition, "tiny: 6 elements"));
}

TEST(DgcModel, GoesOnFromASavedStateBitByBit) {
  Mutator random(4);
  auto first = DgcModel::Create(Dgc{.values = ValueType::kBF16}, SmallModel(), 2, kLink);
  auto second = DgcModel::Create(Dgc{.values = ValueType::kBF16}, SmallModel(), 2, kLink);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  std::vector<std::byte> payload, other;
  for (int step = 0; step < 5; ++step) {
    first->BeginStep(step, 0);
    ASSERT_THAT(first->Encode(0, Gradient(random, 2304), payload), IsOk());
  }
  const auto saved = first->Save();
  ASSERT_THAT(second->Restore(std::vector{std::span<const std::byte>(saved)}), IsOk());
  for (int step = 5; step < 8; ++step) {
    const auto gradient = Gradient(random, 2304);
    first->BeginStep(step, 0);
    second->BeginStep(step, 0);
    ASSERT_THAT(first->Encode(0, gradient, payload), IsOk());
    ASSERT_THAT(second->Encode(0, gradient, other), IsOk());
    EXPECT_EQ(payload, other);
  }
}

TEST(DgcModel, SaysWhatIsWrong) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(DgcModel::Create(Dgc{.sparsity = -1}, {}, 1, kLink), MatchesStatus(kInvalid, "sparsity"));
  EXPECT_THAT(DgcModel::Create(Dgc{}, {}, 0, kLink), MatchesStatus(kInvalid, "0 ranks"));
  const std::vector<DgcModel::Tensor> huge = {{"huge", {1 << 20, 1 << 20, 1 << 30}}};
  EXPECT_THAT(DgcModel::Create(Dgc{}, huge, 1, kLink), MatchesStatus(kInvalid, "'huge'"));
}

}  // namespace
}  // namespace gyre::compression
