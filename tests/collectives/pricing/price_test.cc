// What single messages cost, by hand; and that one rank's price is that of all.
#include "collectives/pricing/price.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "collectives/pricing/closed_form.h"
#include "collectives/pricing/names.h"
#include "collectives/schedule/ring.h"
#include "collectives/schedule/steps.h"
#include "collectives/schedule/symmetry.h"
#include "collectives/step_header.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using support::IsOk;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

using Steps = std::vector<Step>;

// 10 us, 1 GB/s: a KB is a us. No headers, and pieces of 4 KB.
PriceModel PlainPricing() {
  return {.link = {std::chrono::microseconds(10), 1e9}, .header_bytes = 0, .grain = 4000};
}

// When each rank has ended, in us. Rank r does steps[r], on as many blocks as there are sizes.
std::vector<double> Ends(const std::vector<Steps>& steps, const std::vector<int64_t>& bytes,
                         const PriceModel& model = PlainPricing(), const LinkFunction& links = {}) {
  std::vector<Schedule> programs;
  for (const Steps& each : steps) programs.push_back({.blocks = static_cast<int>(bytes.size()), .steps = each});
  const auto price = PriceOf(programs, bytes, model, links);
  EXPECT_THAT(price, IsOk());
  if (!price.ok()) return {};
  std::vector<double> ends;
  for (const double end : price->ended) ends.push_back(end * 1e6);
  EXPECT_EQ(price->seconds * 1e6, *std::ranges::max_element(ends));
  return ends;
}

auto Us(double expected) {
  return DoubleNear(expected, 1e-6);
}

TEST(Price, AMessageTakesLatencyAndItsBytes) {
  EXPECT_THAT(Ends({{SendTo(1, 0)}, {ReceiveFrom(0, 0)}}, {3000}), ElementsAre(Us(3), Us(13)));
  EXPECT_THAT(Ends({{SendTo(1, 0)}, {ReceiveFrom(0, 0)}}, {0}), ElementsAre(Us(0), Us(10)));
  PriceModel model = PlainPricing();
  model.header_bytes = 500;
  EXPECT_THAT(Ends({{SendTo(1, 0)}, {ReceiveFrom(0, 0)}}, {3000}, model), ElementsAre(Us(3.5), Us(13.5)));
  // One header, however many pieces.
  EXPECT_THAT(Ends({{SendTo(1, 0)}, {ReceiveFrom(0, 0)}}, {10'000}, model), ElementsAre(Us(10.5), Us(20.5)));
}

TEST(Price, SendsTakeTurnsAtTheirPort) {
  EXPECT_THAT(Ends({{SendTo(1, 0), SendTo(2, 1)}, {ReceiveFrom(0, 0)}, {ReceiveFrom(0, 1)}}, {3000, 1000}),
              ElementsAre(Us(4), Us(13), Us(14)));
  // Pieces of 4000 to either side: 0-4 to the one, 4-8 to the other, 8-12 to the one.
  EXPECT_THAT(Ends({{SendTo(1, 0), SendTo(2, 1)}, {ReceiveFrom(0, 0)}, {ReceiveFrom(0, 1)}}, {8000, 4000}),
              ElementsAre(Us(12), Us(22), Us(18)));
}

TEST(Price, ReceivesTakeTurnsAtTheirPort) {
  EXPECT_THAT(Ends({{ReceiveFrom(1, 0), ReceiveFrom(2, 1)}, {SendTo(0, 0)}, {SendTo(0, 1)}}, {3000, 1000}),
              ElementsAre(Us(14), Us(3), Us(1)));
}

TEST(Price, BothWaysAtOnce) {
  EXPECT_THAT(Ends({{SendTo(1, 0), ReceiveFrom(1, 1)}, {ReceiveFrom(0, 0), SendTo(0, 1)}}, {3000, 4000}),
              ElementsAre(Us(14), Us(13)));
}

TEST(Price, ABlockIsPassedOnPieceByPiece) {
  const std::vector<Steps> chain = {{SendTo(1, 0)}, {ReceiveFrom(0, 0), SendTo(2, 0)}, {ReceiveFrom(1, 0)}};
  EXPECT_THAT(Ends(chain, {3000}), ElementsAre(Us(3), Us(16), Us(26)));
  EXPECT_THAT(Ends(chain, {12'000}), ElementsAre(Us(12), Us(14 + 12), Us(14 + 12 + 10)));
}

TEST(Price, ReductionsTakeTimeBesideReceiving) {
  PriceModel model = PlainPricing();
  model.reduced_bytes_per_second = 2e9;
  EXPECT_THAT(Ends({{SendTo(1, 0)}, {ReduceFrom(0, 0)}}, {3000}, model), ElementsAre(Us(3), Us(14.5)));
  // The first piece while the second one arrives.
  EXPECT_THAT(Ends({{SendTo(1, 0)}, {ReduceFrom(0, 0)}}, {8000}, model), ElementsAre(Us(8), Us(20)));
  // One core: both arrive by 14, but in turn.
  model.reduced_bytes_per_second = 0.5e9;
  EXPECT_THAT(Ends({{ReduceFrom(1, 0), ReduceFrom(2, 1)}, {SendTo(0, 0)}, {SendTo(0, 1)}}, {2000, 2000}, model),
              ElementsAre(Us(12 + 4 + 4), Us(2), Us(2)));
}

// What arrives waits for the step before it on its block: there is no room for both.
TEST(Price, StepsOnABlockKeepTheirOrder) {
  const std::vector<Steps> steps = {
      {SendTo(1, 1), SendTo(1, 0), ReceiveFrom(2, 0)}, {ReceiveFrom(0, 1), ReceiveFrom(0, 0)}, {SendTo(0, 0)}};
  EXPECT_THAT(Ends(steps, {1000, 40'000}), ElementsAre(Us(41), Us(51), Us(1)));
}

TEST(Price, LinksMayDiffer) {
  const LinkFunction links = [](int from, int to) {
    return sim::LinkModel{std::chrono::microseconds(from == 0 ? 10 : 100), to == 2 ? 0.5e9 : 1e9};
  };
  EXPECT_THAT(
      Ends({{SendTo(1, 0)}, {ReceiveFrom(0, 0), SendTo(2, 0)}, {ReceiveFrom(1, 0)}}, {3000}, PlainPricing(), links),
      ElementsAre(Us(3), Us(13 + 6), Us(13 + 100 + 6)));
}

TEST(Price, RefusesWhatMakesNoSense) {
  const auto refusal = [](std::vector<Steps> steps, const PriceModel& model) {
    std::vector<Schedule> programs;
    for (Steps& each : steps) programs.push_back({.blocks = 2, .steps = std::move(each)});
    const absl::Status status = PriceOf(programs, std::vector<int64_t>{8, 9}, model).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({{SendTo(1, 0)}, {}}, PlainPricing()), HasSubstr("rank 0 sends more messages to rank 1"));
  EXPECT_THAT(refusal({{SendTo(1, 0)}, {ReceiveFrom(0, 1)}}, PlainPricing()),
              HasSubstr("sends 8 bytes to rank 1, which expects 9"));
  EXPECT_THAT(refusal({{ReceiveFrom(1, 0), SendTo(1, 0)}, {ReceiveFrom(0, 0), SendTo(0, 0)}}, PlainPricing()),
              HasSubstr("4 of 4 steps wait for each other"));
  PriceModel model = PlainPricing();
  model.link.latency = {};
  EXPECT_THAT(refusal({{SendTo(1, 0)}, {ReceiveFrom(0, 0)}}, model), HasSubstr("must be positive"));
  const std::vector<Schedule> ring = {RingAllGather(0, 2), RingAllGather(1, 2)};
  EXPECT_FALSE(PriceOf(ring, std::vector<int64_t>{1}, PlainPricing()).ok());
}

TEST(Price, DefaultsAreTheExecutors) {
  EXPECT_EQ(PriceModel().header_bytes, static_cast<int64_t>(kStepHeaderBytes));
}

bool IsSymmetric(const PricedAlgorithm& algorithm, int size) {
  const std::string_view name = algorithm.name;
  if (size == 1) return true;
  if (name == "halving doubling" || name == "recursive doubling")
    return std::has_single_bit(static_cast<unsigned>(size));
  return name == "ring" || name == "circulant" || name == "pairwise" || name == "Bruck" || name == "dissemination";
}

// Of all ranks, not of a sample.
TEST(Symmetry, IsWhatItIsTakenFor) {
  for (const PricedAlgorithm& algorithm : PricedAlgorithms()) {
    for (const int size : {3, 4, 5, 6, 7, 8, 12, 13, 16, 31, 32, 64, 100}) {
      const auto make = [&](int rank) { return algorithm.make(rank, size); };
      const Symmetry symmetry = SymmetryOf(make, size);
      ASSERT_EQ(symmetry != Symmetry::kNone, IsSymmetric(algorithm, size)) << algorithm.name << ", " << size;
      if (symmetry == Symmetry::kNone) continue;
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_TRUE(IsMoved(symmetry, make(0), make(rank), rank, size))
            << algorithm.name << ", " << size << ", " << rank;
      }
    }
  }
}

TEST(Symmetry, OneDifferenceIsSeen) {
  const Schedule zero = RingAllReduce(0, 8), three = RingAllReduce(3, 8);
  EXPECT_TRUE(IsMoved(Symmetry::kTurn, zero, three, 3, 8));
  EXPECT_FALSE(IsMoved(Symmetry::kTurn, zero, three, 4, 8));
  EXPECT_FALSE(IsMoved(Symmetry::kFlip, zero, three, 3, 8));
  for (size_t step = 0; step < three.steps.size(); ++step) {
    Schedule other = three;
    other.steps[step].block = (other.steps[step].block + 1) % 8;
    EXPECT_FALSE(IsMoved(Symmetry::kTurn, zero, other, 3, 8)) << step;
    other = three;
    other.steps[step].peer = (other.steps[step].peer + 1) % 8;
    EXPECT_FALSE(IsMoved(Symmetry::kTurn, zero, other, 3, 8)) << step;
  }
  Schedule shorter = three;
  shorter.steps.pop_back();
  EXPECT_FALSE(IsMoved(Symmetry::kTurn, zero, shorter, 3, 8));
}

class OfAll : public testing::TestWithParam<PricedAlgorithm> {
 protected:
  // By all ranks' events, and by the one's for all: the same, to the bit.
  static void Compare(int size, int64_t block_bytes, const PriceModel& model) {
    std::vector<Schedule> programs;
    for (int rank = 0; rank < size; ++rank) programs.push_back(GetParam().make(rank, size));
    const auto all = PriceOf(programs, std::vector(static_cast<size_t>(programs[0].blocks), block_bytes), model);
    const auto one = PriceOfAlike([&](int rank) { return GetParam().make(rank, size); }, size, block_bytes, model);
    ASSERT_THAT(all, IsOk());
    ASSERT_THAT(one, IsOk());
    ASSERT_EQ(one->seconds, all->seconds) << size << " ranks, blocks of " << block_bytes;
    const bool symmetric = IsSymmetric(GetParam(), size);
    ASSERT_EQ(one->ended.size(), symmetric ? 1 : size);
    ASSERT_EQ(one->pieces * (symmetric ? size : 1), all->pieces);
    if (!symmetric) return;
    EXPECT_THAT(all->ended, testing::Each(one->seconds));
  }
};

TEST_P(OfAll, OneRankStandsForAll) {
  PriceModel model;
  model.reduced_bytes_per_second = 3e9;
  for (const int size : {2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 24, 32, 33}) {
    for (const int64_t block_bytes : {0, 1, 777, 65'536, 65'537, 300'000}) Compare(size, block_bytes, model);
  }
  model.link = {std::chrono::nanoseconds(700), 12.5e9};
  Compare(100, 5'000, model);
  Compare(64, 200'000, model);
}

// A million events a second: of those who have millions, the one that is used most.
TEST_P(OfAll, OfManyRanks) {
  const bool few = GetParam().make(0, 64).steps.size() < 64;
  const bool most = GetParam().operation == "allreduce" && GetParam().name == "ring";
  Compare(!THOROUGH ? 100 : few || most ? 1024 : 256, 1'000, {});
}

// Of blocks of many pieces, the rest is worked out from the first of them.
TEST_P(OfAll, LongBlocksAreExtrapolated) {
  for (const int size : {13, 24, 100}) {
    const auto make = [&](int rank) { return GetParam().make(rank, size); };
    const int64_t block_bytes = 300 * (64 << 10) + 12'345;
    if (make(0).steps.size() > 20 || IsSymmetric(GetParam(), size)) continue;
    const auto all = PriceOfAlike(make, size, block_bytes, {}), some = PriceOfAlike(make, size, block_bytes, {}, 1);
    ASSERT_THAT(all, IsOk());
    ASSERT_THAT(some, IsOk());
    EXPECT_FALSE(all->extrapolated);
    EXPECT_TRUE(some->extrapolated);
    EXPECT_LT(some->pieces, all->pieces / 2);
    EXPECT_NEAR(some->seconds / all->seconds, 1, 0.05) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Prices, OfAll, testing::ValuesIn(PricedAlgorithms()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace gyre::internal
