// Event by event, each algorithm costs what its formula in docs/algorithms.md says: within 5 %, or what stands here.
#include "collectives/pricing/closed_form.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "collectives/pricing/names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using support::IsOk;

// 10 Gbit/s and 20 us; 1 Gbit/s and 50 us; 100 Gbit/s and 5 us; 200 Gbit/s and 1 us.
std::vector<PriceModel> Models() {
  const auto model = [](double microseconds, double bytes_per_second, double reduced) {
    return PriceModel{.link = {std::chrono::nanoseconds(std::lround(microseconds * 1000)), bytes_per_second},
                      .reduced_bytes_per_second = reduced};
  };
  return {model(20, 1.25e9, 10e9), model(50, 0.125e9, 10e9), model(5, 12.5e9, 20e9), model(1, 25e9, 50e9)};
}

constexpr double kClose = 0.05;

// How far the price may be from the formula. What is worse than 5 % was measured, and has its reason: in which order
// blocks (circulant, Bruck) or pieces (trees) of several rounds go through a port at once, the formula does not know.
double Bound(const PricedAlgorithm& algorithm, int size, bool in_pieces) {
  const std::string_view name = algorithm.name;
  const bool power = std::has_single_bit(static_cast<unsigned>(size));
  if (name == "halving doubling") return 0.1;
  if (name == "circulant" && !power) return 0.12;
  if (name == "Bruck") return 0.15;
  if (name == "binomial" && in_pieces) return 0.3;
  if (name == "binomial" && algorithm.operation == "reduce" && !power) return 0.18;
  if (name == "double tree" && in_pieces) return 0.25;
  return kClose;
}

absl::StatusOr<Price> PriceFor(const PricedAlgorithm& algorithm, int size, int64_t block_bytes,
                               const PriceModel& model) {
  return PriceOfAlike([&](int rank) { return algorithm.make(rank, size); }, size, block_bytes, model);
}

class ClosedForm : public testing::TestWithParam<PricedAlgorithm> {
 protected:
  // How many times the formula's the price is. Nothing where there is no formula.
  static std::optional<double> Ratio(int size, int64_t bytes, const PriceModel& model) {
    const int64_t block_bytes = GetParam().BlockBytes(size, bytes);
    const auto formula = GetParam().closed_form(size, block_bytes, model);
    if (!formula) return std::nullopt;
    const auto price = PriceFor(GetParam(), size, block_bytes, model);
    EXPECT_THAT(price, IsOk());
    return price.ok() ? std::optional(price->seconds / *formula) : std::nullopt;
  }
};

TEST_P(ClosedForm, IsWhatEventsCost) {
  std::vector<int> sizes = {2, 4, 8, 13, 16, 31, 32, 64, 100};
  if (THOROUGH) sizes.insert(sizes.end(), {257, 512, 1000});
  for (const PriceModel& model : Models()) {
    for (const int size : sizes) {
      for (const int64_t bytes : {8, 1'000, 30'000, 300'000, 3'000'000}) {
        const auto ratio = Ratio(size, bytes, model);
        if (!ratio) continue;
        const bool in_pieces = GetParam().BlockBytes(size, bytes) > model.grain;
        EXPECT_NEAR(*ratio, 1, Bound(GetParam(), size, in_pieces))
            << size << " ranks, " << bytes << " bytes, " << model.link.bytes_per_second << " bytes/s";
      }
    }
  }
}

// The acceptance: on an uncongested network, as many ranks as no machine here has.
TEST_P(ClosedForm, At1024And16384Ranks) {
  double worst = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (const int size : {1024, 16384}) {
    if (!THOROUGH && size > 1024) continue;
    for (const int64_t bytes : {8, 1'000, 30'000, 1'000'000, 100'000'000}) {
      if (GetParam().BlockBytes(size, bytes) > PriceModel().grain && GetParam().name != "ring") continue;
      if (const auto ratio = Ratio(size, bytes, Models()[0])) worst = std::max(worst, std::abs(*ratio - 1));
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(worst, GetParam().name == "Bruck" ? 0.08 : kClose);
  EXPECT_LT(took.count(), 60);
  RecordProperty("worst_percent", absl::StrCat(worst * 100));
  RecordProperty("seconds", absl::StrCat(took.count()));
}

// A formula that holds of everything says nothing: of other latencies and speeds it is far off.
TEST_P(ClosedForm, DependsOnTheLink) {
  const PriceModel model = Models()[0];
  PriceModel slower = model, farther = model;
  slower.link.bytes_per_second /= 2;
  slower.reduced_bytes_per_second /= 2;
  farther.link.latency *= 2;
  const int64_t bytes = GetParam().BlockBytes(16, 1'000'000);
  const auto formula = GetParam().closed_form(16, bytes, model);
  if (!formula) return;
  const auto price = [&](const PriceModel& other) { return PriceFor(GetParam(), 16, bytes, other)->seconds; };
  EXPECT_NEAR(price(slower) + price(farther), 3 * price(model), price(model) * 0.35);
  EXPECT_GT(price(slower) + price(farther), 2.3 * *formula);
}

// Where ranks are left over, there is no formula; but it costs no less than without them, and no more than three
// messages of everything more than with twice as many.
TEST_P(ClosedForm, RanksLeftOver) {
  if (GetParam().closed_form(5, 100, Models()[0]) || GetParam().name == "double tree") return;
  for (const int size : {5, 7, 13, 24, 100}) {
    for (const int64_t bytes : {8, 30'000, 3'000'000}) {
      const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
      const auto seconds = [&](int ranks) {
        return PriceFor(GetParam(), ranks, GetParam().BlockBytes(ranks, bytes), Models()[0])->seconds;
      };
      EXPECT_GE(seconds(size), seconds(power)) << size << " ranks, " << bytes;
      const double message = 20e-6 + static_cast<double>(bytes + 64 * power) * (0.8e-9 + 0.1e-9);
      EXPECT_LE(seconds(size), seconds(2 * power) + 3 * message) << size << " ranks, " << bytes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Prices, ClosedForm, testing::ValuesIn(PricedAlgorithms()),
                         [](const auto& info) { return NameOf(info.param); });

TEST(PricedAlgorithms, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const PricedAlgorithm& algorithm : PricedAlgorithms()) {
    EXPECT_TRUE(names.insert(absl::StrCat(std::string(algorithm.operation), "/", std::string(algorithm.name))).second);
  }
  EXPECT_EQ(names.size(), 18);
}

TEST(PricedAlgorithms, SplitTheBytesIntoBlocks) {
  const auto of = [](std::string_view operation, std::string_view name) {
    for (const PricedAlgorithm& each : PricedAlgorithms()) {
      if (each.operation == operation && each.name == name) return each.BlockBytes(10, 101);
    }
    return int64_t{-1};
  };
  EXPECT_EQ(of("allreduce", "ring"), 11);
  EXPECT_EQ(of("allreduce", "recursive doubling"), 101);
  EXPECT_EQ(of("allreduce", "halving doubling"), 13);
  EXPECT_EQ(of("broadcast", "double tree"), 51);
  EXPECT_EQ(of("alltoall", "pairwise"), 11);
  EXPECT_EQ(of("barrier", "dissemination"), 0);
}

}  // namespace
}  // namespace gyre::internal
