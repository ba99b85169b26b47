#include "compression/power_sgd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "support/mutator.h"
#include "support/status_matchers.h"

namespace gyre::compression {
namespace {

using support::MatchesStatus;
using support::Mutator;

std::vector<float> Random(Mutator& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
  return values;
}

void Average(std::span<float> a, std::span<float> b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = b[i] = (a[i] + b[i]) / 2;
}

double Norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// A matrix that has this rank is what is sent, soon.
TEST(PowerSgd, FindsAMatrixOfItsRank) {
  Mutator random(1);
  constexpr size_t kRows = 37, kColumns = 23;
  const auto left = Random(random, kRows * 2), right = Random(random, kColumns * 2);
  std::vector<float> matrix(kRows * kColumns), out(matrix.size());
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kColumns; ++j) {
      matrix[i * kColumns + j] = left[2 * i] * right[2 * j] + left[2 * i + 1] * right[2 * j + 1];
    }
  }
  auto tensor = PowerSgdTensor::Create({.rank = 2}, kRows, kColumns, 7).value();
  for (int step = 0; step < 3; ++step) {
    tensor.MakeP(matrix);
    tensor.MakeQ();
    tensor.Finish(out);
  }
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], matrix[i], 1e-4) << i;
}

// Of two ranks: the same result on both, and what is not in it is kept.
TEST(PowerSgd, NothingIsLostOfTheMean) {
  Mutator random(2);
  constexpr size_t kRows = 16, kColumns = 50;
  auto a = PowerSgdTensor::Create({.rank = 3}, kRows, kColumns, 7).value();
  auto b = PowerSgdTensor::Create({.rank = 3}, kRows, kColumns, 7).value();
  std::vector<float> out_a(kRows * kColumns), out_b(out_a.size());
  std::vector<double> given(out_a.size()), got(out_a.size());
  for (int step = 0; step < 40; ++step) {
    const auto gradient_a = Random(random, out_a.size()), gradient_b = Random(random, out_a.size());
    Average(a.MakeP(gradient_a), b.MakeP(gradient_b));
    Average(a.MakeQ(), b.MakeQ());
    a.Finish(out_a);
    b.Finish(out_b);
    ASSERT_EQ(out_a, out_b);
    for (size_t i = 0; i < out_a.size(); ++i) {
      given[i] += (static_cast<double>(gradient_a[i]) + gradient_b[i]) / 2;
      got[i] += out_a[i];
    }
  }
  for (size_t i = 0; i < out_a.size(); ++i) {
    EXPECT_NEAR(got[i] + (static_cast<double>(a.kept()[i]) + b.kept()[i]) / 2, given[i], 1e-3);
  }
  EXPECT_LT(Norm(a.kept()), 10 * Norm(out_a) + 200);  // and does not pile up
}

bool Finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// Of two ranks, one of which has it in one step: it arrives on both, and in later steps nothing is left of it.
TEST(PowerSgd, ForgetsWhatIsNotFinite) {
  constexpr size_t kRows = 16, kColumns = 50;
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Mutator random(3);
    auto a = PowerSgdTensor::Create({.rank = 3}, kRows, kColumns, 7).value();
    auto b = PowerSgdTensor::Create({.rank = 3}, kRows, kColumns, 7).value();
    std::vector<float> out_a(kRows * kColumns), out_b(out_a.size());
    for (int step = 0; step < 6; ++step) {
      auto gradient_a = Random(random, out_a.size());
      const auto gradient_b = Random(random, out_a.size());
      if (step == 2) gradient_a[77] = bad;
      Average(a.MakeP(gradient_a), b.MakeP(gradient_b));
      Average(a.MakeQ(), b.MakeQ());
      a.Finish(out_a);
      b.Finish(out_b);
      ASSERT_EQ(std::isfinite(out_a[77]), step != 2) << step;
      ASSERT_EQ(std::isfinite(out_b[77]), step != 2) << step;
      ASSERT_TRUE(Finite(a.kept()) && Finite(b.kept())) << step;
      if (step == 2) continue;
      ASSERT_TRUE(Finite(out_a)) << step;
      ASSERT_EQ(out_a, out_b) << step;
      ASSERT_GT(Norm(out_a), 1) << step;
    }
  }
}

// Longer than the pieces that sums are made of, of which none is left out or taken twice.
TEST(PowerSgd, FindsLargeMatrices) {
  Mutator random(4);
  for (const auto& [rows, columns] : {std::pair<size_t, size_t>{600, 40}, {20, 5000}, {300, 2100}}) {
    const auto left = Random(random, rows), right = Random(random, columns);
    std::vector<float> matrix(rows * columns), out(matrix.size());
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = left[i / columns] * right[i % columns];
    auto tensor =
        PowerSgdTensor::Create({.rank = 1}, static_cast<int64_t>(rows), static_cast<int64_t>(columns), 7).value();
    tensor.MakeP(matrix);
    tensor.MakeQ();
    tensor.Finish(out);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], matrix[i], 1e-5) << i;
  }
}

TEST(PowerSgd, BearsZerosAndSingleElements) {
  auto tensor = PowerSgdTensor::Create({.rank = 4}, 1, 1, 7).value();
  EXPECT_EQ(tensor.rank(), 1);
  std::vector<float> out = {9};
  for (const float value : {0.0f, 3.0f}) {
    tensor.MakeP(std::vector<float>{value});
    tensor.MakeQ();
    tensor.Finish(out);
    EXPECT_NEAR(out[0], value, 1e-6);
    out[0] += tensor.kept()[0];
    EXPECT_EQ(out[0], value);
  }
}

TEST(PowerSgd, SaysWhatIsWrong) {
  EXPECT_THAT(PowerSgdTensor::Create({.rank = 0}, 2, 2, 1), MatchesStatus(absl::StatusCode::kInvalidArgument, "rank"));
  EXPECT_THAT(PowerSgdTensor::Create({}, 0, 2, 1), MatchesStatus(absl::StatusCode::kInvalidArgument, "0 x 2"));
}

}  // namespace
}  // namespace gyre::compression
