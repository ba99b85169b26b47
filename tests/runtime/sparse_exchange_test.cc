// The forms of a sparse exchange: payloads gathered whole, sums split by regions, gradients reduced in hosts first.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compression/codec.h"
#include "compression/state.h"
#include "gtest/gtest.h"
#include "runtime/exchange_world.h"
#include "runtime/host_pieces.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using internal::ExchangeSettings;
using internal::HostPieces;
using support::IsOk;

// Of odd sizes; covered are those of two dimensions.
const std::vector<std::vector<int64_t>> kShapes = {{61, 53}, {257}, {1, 1031}, {1}, {0}, {23, 111}};
const std::vector<int> kAll = {0, 1, 2, 3, 4, 5};

ExchangeSettings Settings(const Compression& compression) {
  ExchangeSettings settings{.tensors = {}, .op = ReduceOp::kSum, .prescale = 0.5, .postscale = 1.5};
  for (size_t i = 0; i < kShapes.size(); ++i) {
    internal::ExchangeTensor tensor{.name = absl::StrCat("layer", i), .shape = kShapes[i]};
    tensor.count = std::accumulate(kShapes[i].begin(), kShapes[i].end(), int64_t{1}, std::multiplies<>());
    tensor.covered = IsCovered(compression, tensor);
    settings.tensors.push_back(std::move(tensor));
  }
  return settings;
}
constexpr double kScale = 0.75;

// Of any size from 0.001 to 1, of either sign, another on each rank and in each step.
float GradientOf(int rank, size_t tensor, size_t element, int64_t step) {
  auto lot = static_cast<uint32_t>(static_cast<size_t>(rank) * 7919 + tensor * 104'729 + element * 31 +
                                   static_cast<size_t>(step) * 15'485'863);
  lot = (lot ^ lot >> 15) * 0x2c1b3c6du;
  lot = (lot ^ lot >> 12) * 0x297a2d39u;
  lot ^= lot >> 15;
  const float size = std::exp2(-static_cast<float>(lot >> 8 & 1023) / 102.4f);
  return (lot & 1) != 0 ? size : -size;
}

void Fill(ExchangeWorld& world, int64_t step) {
  for (int rank = 0; rank < world.ranks(); ++rank) {
    for (size_t t = 0; t < kShapes.size(); ++t) {
      const std::span<float> values = world.values(rank, t);
      for (size_t i = 0; i < values.size(); ++i) values[i] = GradientOf(rank, t, i, step);
    }
  }
  world.BeginStep(step);
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

void ExpectSameOnAllRanks(ExchangeWorld& world) {
  for (int rank = 1; rank < world.ranks(); ++rank) {
    for (size_t t = 0; t < kShapes.size(); ++t) {
      ASSERT_TRUE(SameBits(world.values(0, t), world.values(rank, t))) << "rank " << rank << ", gradient " << t;
    }
  }
}

// What was sent and is still to be sent, of all steps together.
class Ledger {
 public:
  Ledger() {
    for (const auto& tensor : Settings(TopK{}).tensors) {
      expected_.emplace_back(static_cast<size_t>(tensor.count));
      arrived_.emplace_back(static_cast<size_t>(tensor.count));
    }
  }

  void Count(ExchangeWorld& world, int64_t step) {
    for (size_t t = 0; t < kShapes.size(); ++t) {
      for (size_t i = 0; i < arrived_[t].size(); ++i) {
        arrived_[t][i] += world.values(0, t)[i];
        for (int rank = 0; rank < world.ranks(); ++rank) expected_[t][i] += kScale * GradientOf(rank, t, i, step);
      }
    }
  }

  // `kept`: what all ranks keep, by covered gradient, or by any where halves are sent.
  void ExpectNothingIsLost(ExchangeWorld& world, bool halves) {
    auto sums = arrived_;
    for (int rank = 0; rank < world.ranks(); ++rank) {
      const auto state = world.exchange(rank).state();
      size_t next = 0;
      for (size_t t = 0; t < kShapes.size(); ++t) {
        if (kShapes[t].size() < 2 && !halves) continue;
        const std::span<const float> kept = state[next++].back();
        ASSERT_EQ(kept.size(), sums[t].size());
        for (size_t i = 0; i < kept.size(); ++i) sums[t][i] += kScale * kept[i];
      }
      ASSERT_EQ(next, state.size());
    }
    for (size_t t = 0; t < kShapes.size(); ++t) {
      for (size_t i = 0; i < sums[t].size(); ++i) ASSERT_NEAR(sums[t][i], expected_[t][i], 4e-5) << t << " " << i;
    }
  }

 private:
  std::vector<std::vector<double>> expected_, arrived_;
};

std::vector<int> EachOnItsOwn(int ranks) {
  std::vector<int> hosts(static_cast<size_t>(ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

std::vector<Compression> Sparse(ValueType values) {
  return {TopK{.sparsity = 0.9, .values = values}, TopK{.sparsity = 0.97, .sampled = true, .values = values},
          Dgc{.sparsity = 0.95, .momentum = 0, .values = values}};
}

bool IsHalf(ValueType values) {
  return values != ValueType::kF32;
}

// --- Regions ---

TEST(SparseExchange, SplitSumsAreThoseOfGatheredPayloadsBitByBit) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (const Compression& compression : Sparse(ValueType::kF32)) {
      ExchangeSettings settings = Settings(compression);
      ExchangeWorld gathered(compression, settings, EachOnItsOwn(ranks));
      settings.most_gathered = 0;
      ExchangeWorld split(compression, settings, EachOnItsOwn(ranks));
      Ledger ledger;
      for (int64_t step = 1; step <= 4; ++step) {
        Fill(gathered, step);
        Fill(split, step);
        ASSERT_THAT(gathered.Exchange(kAll), IsOk());
        EXPECT_EQ(gathered.calls(), 2);
        ASSERT_THAT(split.Exchange(kAll), IsOk());
        EXPECT_EQ(split.calls(), 4);
        ExpectSameOnAllRanks(split);
        for (size_t t = 0; t < kShapes.size(); ++t) {
          ASSERT_TRUE(SameBits(gathered.values(0, t), split.values(0, t))) << ranks << " " << step << " " << t;
        }
        ledger.Count(split, step);
      }
      ledger.ExpectNothingIsLost(split, false);
    }
  }
}

TEST(SparseExchange, HalvesKeepAllThatRoundingTakesAway) {
  for (const ValueType values : {ValueType::kF16, ValueType::kBF16}) {
    for (const Compression& compression : Sparse(values)) {
      for (const int most_gathered : {0, 32}) {
        ExchangeSettings settings = Settings(compression);
        settings.most_gathered = most_gathered;
        ExchangeWorld world(compression, settings, EachOnItsOwn(3));
        Ledger ledger;
        for (int64_t step = 1; step <= 5; ++step) {
          Fill(world, step);
          ASSERT_THAT(world.Exchange(kAll), IsOk());
          ExpectSameOnAllRanks(world);
          ledger.Count(world, step);
        }
        ledger.ExpectNothingIsLost(world, true);
      }
    }
  }
}

// More hosts than payloads are gathered from: the real threshold, calls and streams.
TEST(SparseExchange, SplitsSumsBetweenManySimulatedHosts) {
  constexpr int kRanks = internal::kMostGathered + 1;
  SimWorld network({.ranks = kRanks});
  const Compression compression = Dgc{.sparsity = 0.98, .momentum = 0};
  ExchangeWorld world(compression, Settings(compression), EachOnItsOwn(kRanks), &network);
  Ledger ledger;
  for (int64_t step = 1; step <= 2; ++step) {
    Fill(world, step);
    ASSERT_THAT(world.Exchange(kAll), IsOk());
    EXPECT_EQ(world.calls(), 4);
    ExpectSameOnAllRanks(world);
    ledger.Count(world, step);
  }
  ledger.ExpectNothingIsLost(world, false);
}

// Where a few elements outweigh all others, regions become small there.
TEST(SparseExchange, RegionsAreBalancedFromTheSecondStepOn) {
  const Compression compression = TopK{.sparsity = 0.96};
  ExchangeSettings settings = Settings(compression);
  settings.most_gathered = 0;
  ExchangeWorld world(compression, settings, EachOnItsOwn(5));
  const auto skew = [&](int64_t step) {
    Fill(world, step);
    for (int rank = 0; rank < world.ranks(); ++rank) {
      for (size_t i = 0; i < 500; ++i) world.values(rank, 0)[i] *= 4096;
    }
    EXPECT_THAT(world.Exchange({0}), IsOk());
    std::vector<int64_t> sent;
    for (int rank = 0; rank < world.ranks(); ++rank) sent.push_back(world.exchange(rank).sent_bytes());
    return std::ranges::max(sent);
  };
  const int64_t first = skew(1), second = skew(2);
  EXPECT_LT(second, first * 2 / 3);
}

// Where all elements weigh the same, regions stay about even, though each rank has chosen from a piece only.
TEST(SparseExchange, RegionsAreBalancedWhereHostsReduceFirst) {
  const Compression compression = TopK{.sparsity = 0.8};
  ExchangeSettings settings = Settings(compression);
  settings.most_gathered = 0;
  ExchangeWorld world(compression, settings, {0, 0, 0, 0, 1, 1, 1, 1});
  const auto most_sent = [&](int64_t step) {
    Fill(world, step);
    EXPECT_THAT(world.Exchange({0}), IsOk());
    std::vector<int64_t> sent;
    for (int rank = 0; rank < world.ranks(); ++rank) sent.push_back(world.exchange(rank).sent_bytes());
    return std::ranges::max(sent);
  };
  const int64_t first = most_sent(1), second = most_sent(2);
  EXPECT_LT(second, first * 13 / 10);
}

// --- The global choice ---

// What one rank keeps, worked out beside it: u and v of each covered gradient.
struct Kept {
  std::vector<std::vector<float>> u = {}, v = {};
};

bool Same(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// After a step: each element was sent, or is as if it had never been chosen, bit by bit; and the result is the sum of
// what was sent. How many elements of covered gradients are not 0 in the result.
int64_t ExpectSentOrKept(ExchangeWorld& world, std::vector<Kept>& kept, int64_t step, float momentum) {
  int64_t told = 0;
  std::vector<std::vector<compression::StateArrays>> states;
  for (int rank = 0; rank < world.ranks(); ++rank) states.push_back(world.exchange(rank).state());
  for (size_t t = 0, covered = 0; t < kShapes.size(); ++t) {
    if (kShapes[t].size() < 2) continue;
    for (size_t i = 0; i < world.values(0, t).size(); ++i) {
      float sum = 0;
      for (size_t rank = 0; rank < kept.size(); ++rank) {
        float& u = kept[rank].u[t][i];
        float& v = kept[rank].v[t][i];
        u = momentum * u + GradientOf(static_cast<int>(rank), t, i, step);
        v += u;
        const auto& state = states[rank][covered];
        const bool sent = v != 0 && state[1][i] == 0;
        if (sent) sum += static_cast<float>(kScale) * v;
        if (sent) u = v = 0;
        EXPECT_TRUE(Same(state[0][i], u) && Same(state[1][i], v)) << step << " " << rank << " " << t << " " << i;
      }
      EXPECT_EQ(world.values(0, t)[i], sum) << step << " " << t << " " << i;
      told += sum != 0 ? 1 : 0;
    }
    ++covered;
  }
  return told;
}

TEST(SparseExchange, WhatIsNotChosenGloballyIsKeptBitByBit) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const float momentum : {0.0f, 0.9f}) {
      const Compression compression = Dgc{.sparsity = 0.97, .momentum = momentum, .global = true};
      ExchangeWorld world(compression, Settings(compression), EachOnItsOwn(ranks));
      std::vector<Kept> kept(static_cast<size_t>(ranks));
      for (Kept& each : kept) {
        for (size_t t = 0; t < kShapes.size(); ++t) each.u.emplace_back(world.values(0, t).size());
        each.v = each.u;
      }
      int64_t wanted = 0, told = 0;
      for (const auto& shape : kShapes) {
        if (shape.size() >= 2) wanted += compression::KeptCount(0.97, shape[0] * shape[1]);
      }
      constexpr int64_t kSteps = 16;
      for (int64_t step = 1; step <= kSteps; ++step) {
        Fill(world, step);
        ASSERT_THAT(world.Exchange(kAll), IsOk());
        EXPECT_EQ(world.calls(), 5);
        ExpectSameOnAllRanks(world);
        const int64_t now = ExpectSentOrKept(world, kept, step, momentum);
        ASSERT_FALSE(testing::Test::HasFailure());
        EXPECT_LT(now, 2 * wanted) << ranks << " " << step;
        told += now;
      }
      EXPECT_NEAR(static_cast<double>(told) / kSteps, wanted, 0.1 * static_cast<double>(wanted)) << ranks;
    }
  }
}

TEST(SparseExchange, GlobalChoicesLoseNothing) {
  for (const auto& hosts : {std::vector{0, 1, 2}, {0, 0, 1, 1}, {0, 0, 0, 1}}) {
    for (const ValueType values : {ValueType::kF32, ValueType::kF16, ValueType::kBF16}) {
      const Compression top = TopK{.sparsity = 0.9, .sampled = true, .values = values, .global = true};
      const Compression dgc = Dgc{.sparsity = 0.95, .momentum = 0, .values = values, .global = true};
      for (const Compression& compression : {top, dgc}) {
        ExchangeWorld world(compression, Settings(compression), hosts);
        Ledger ledger;
        for (int64_t step = 1; step <= 6; ++step) {
          Fill(world, step);
          ASSERT_THAT(world.Exchange({0, 1, 4}), IsOk());
          ASSERT_THAT(world.Exchange({2, 3, 5}, step == 4), IsOk());  // the fourth step's goes dense
          ExpectSameOnAllRanks(world);
          ledger.Count(world, step);
        }
        ledger.ExpectNothingIsLost(world, IsHalf(values));
      }
    }
  }
}

// Where the largest sums are all in one region, what is told of it is evened out; the outcome is the same.
TEST(SparseExchange, UnevenGlobalChoicesAreEvenedOut) {
  const Compression compression = TopK{.sparsity = 0.5, .global = true};
  ExchangeSettings settings{.tensors = {}, .op = ReduceOp::kSum};
  settings.tensors.push_back({.name = "wide", .shape = {8, 20'000}, .count = 160'000, .covered = true});
  ExchangeWorld world(compression, settings, EachOnItsOwn(8));
  int evened = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    for (int rank = 0; rank < world.ranks(); ++rank) {
      const std::span<float> values = world.values(rank, 0);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = i < 20'000 ? 1 + static_cast<float>(i % 7 + static_cast<size_t>(rank)) : 0.0f;
      }
    }
    world.BeginStep(step);
    ASSERT_THAT(world.Exchange({0}), IsOk());
    evened += world.calls() == 6 ? 1 : 0;
    for (size_t i = 0; i < 160'000; ++i) {
      ASSERT_EQ(world.values(3, 0)[i], i < 20'000 ? 36 + 8 * static_cast<float>(i % 7) : 0) << step << " " << i;
    }
  }
  EXPECT_GE(evened, 1);
}

// Bytes that a rank receives, where ranks choose apart but for a part that they have in common: an allgather's grow
// with their number, a split's with the union of what they choose, a global choice's hardly. Prints what
// docs/compression.md has.
TEST(SparseExchange, AGlobalChoiceBoundsWhatIsReceived) {
  const auto received = [](const Compression& compression, int ranks, int most_gathered) {
    ExchangeSettings settings{.tensors = {}, .op = ReduceOp::kSum, .most_gathered = most_gathered};
    settings.tensors.push_back({.name = "layer", .shape = {250, 400}, .count = 100'000, .covered = true});
    ExchangeWorld world(compression, settings, EachOnItsOwn(ranks));
    double bytes = 0;
    for (int64_t step = 1; step <= 4; ++step) {
      for (int rank = 0; rank < ranks; ++rank) {
        const std::span<float> values = world.values(rank, 0);
        for (size_t i = 0; i < values.size(); ++i) {  // a part that all ranks have in common
          values[i] = GradientOf(0, 7, i, step) + GradientOf(rank + 1, 1, i, step);
        }
      }
      world.BeginStep(step);
      EXPECT_THAT(world.Exchange({0}), IsOk());
      if (step > 2) bytes += world.received() / 2;
    }
    return bytes;
  };
  for (const int ranks : {2, 4, 8, 32}) {
    const Dgc exact{.sparsity = 0.99};
    Dgc global = exact;
    global.global = true;
    const double gathered = received(exact, ranks, ranks), split = received(exact, ranks, 0);
    const double chosen = received(global, ranks, 0);
    std::printf("%2d ranks, 1 %% of 100,000: gathered %.0f, split %.0f, global %.0f bytes a step\n", ranks, gathered,
                split, chosen);
    EXPECT_LT(chosen, 1000 * 2.5 * 6);
    if (ranks >= 8) {
      EXPECT_LT(chosen, split / 2);
      EXPECT_LT(chosen, gathered / 2);
    }
  }
}

TEST(SparseExchange, WhatIsPreparedAheadIsTheSame) {
  for (const bool global : {false, true}) {
    const Compression compression = Dgc{.sparsity = 0.9, .global = global};
    ExchangeWorld plain(compression, Settings(compression), EachOnItsOwn(3));
    ExchangeWorld ahead(compression, Settings(compression), EachOnItsOwn(3));
    for (int64_t step = 1; step <= 3; ++step) {
      Fill(plain, step);
      Fill(ahead, step);
      EXPECT_GT(ahead.Prepare(1, {2, 3, 5}), 0);  // some ranks are further than others
      EXPECT_GT(ahead.Prepare(2, {2, 3, 5}), 0);
      EXPECT_GT(ahead.Prepare(2, {0, 1, 4}), 0);
      for (const auto& part : {std::vector{2, 3, 5}, std::vector{0, 1, 4}}) {
        ASSERT_THAT(plain.Exchange(part), IsOk());
        ASSERT_THAT(ahead.Exchange(part), IsOk());
      }
      ExpectSameOnAllRanks(ahead);
      for (size_t t = 0; t < kShapes.size(); ++t) ASSERT_TRUE(SameBits(plain.values(0, t), ahead.values(0, t))) << t;
    }
  }
}

// --- Hosts ---

TEST(HostPieces, CutEveryGradientOnce) {
  for (const auto& hosts : {std::vector{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 0, 1, 1}, {0, 1, 2}, {0, 0, 0, 1, 1, 1}}) {
    const HostPieces pieces(hosts);
    for (const int64_t count : {0, 1, 15, 16, 17, 33, 1000}) {
      int64_t end = 0;
      for (int piece = 0; piece < pieces.pieces(); ++piece) {
        EXPECT_EQ(pieces.Of(count, piece).begin, end);
        end += pieces.Of(count, piece).count;
      }
      EXPECT_EQ(end, count);
      EXPECT_EQ(pieces.Of(count, pieces.pieces()).count, 0);
    }
  }
  const HostPieces uneven(std::vector{0, 0, 0, 1});
  EXPECT_EQ(uneven.pieces(), 1);
  EXPECT_EQ(uneven.local(2), 2);
  EXPECT_FALSE(uneven.has_piece(2));
  EXPECT_TRUE(uneven.has_piece(3));
}

const std::vector<std::vector<int>> kHosts = {{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 0, 2}, {0, 0, 0, 1, 1, 1, 1}};

TEST(SparseExchange, HostsReduceFirstAndNothingIsLost) {
  for (const auto& hosts : kHosts) {
    for (const ValueType values : {ValueType::kF32, ValueType::kF16}) {
      for (const Compression& compression : Sparse(values)) {
        for (const int most_gathered : {0, 32}) {
          ExchangeSettings settings = Settings(compression);
          settings.most_gathered = most_gathered;
          ExchangeWorld world(compression, settings, hosts);
          ASSERT_TRUE(world.exchange(0).reduces_in_host());
          Ledger ledger;
          for (int64_t step = 1; step <= 4; ++step) {
            Fill(world, step);
            ASSERT_THAT(world.Exchange({0, 1, 4}), IsOk());
            ASSERT_THAT(world.Exchange({2, 3, 5}, step == 3), IsOk());  // the third step's goes dense
            ExpectSameOnAllRanks(world);
            ledger.Count(world, step);
          }
          ledger.ExpectNothingIsLost(world, IsHalf(values));
        }
      }
    }
  }
}

// Two ranks of a host send what one would: between hosts go as many elements as one rank chooses.
TEST(SparseExchange, HostsSendWhatOneRankWould) {
  const Compression compression = TopK{.sparsity = 0.9};
  ExchangeWorld apart(compression, Settings(compression), {0, 1, 2, 3});
  ExchangeWorld together(compression, Settings(compression), {0, 0, 1, 1});
  Fill(apart, 1);
  Fill(together, 1);
  ASSERT_THAT(apart.Exchange({0}), IsOk());
  ASSERT_THAT(together.Exchange({0}), IsOk());
  const int64_t host = together.exchange(0).sent_bytes() + together.exchange(1).sent_bytes();
  EXPECT_LT(host, apart.exchange(0).sent_bytes() * 12 / 10);
}

// A sum of the host's gradients has one momentum, so each velocity is that of all ranks' gradients.
TEST(SparseExchange, MomentumIsThatOfDenseTraining) {
  const Compression compression = Dgc{.sparsity = 0, .momentum = 0.9f, .factor_masking = false};
  ExchangeWorld world(compression, Settings(compression), {0, 0, 1, 1});
  std::vector<double> u(static_cast<size_t>(world.values(0, 0).size()));
  for (int64_t step = 1; step <= 4; ++step) {
    Fill(world, step);
    ASSERT_THAT(world.Exchange(kAll, true), IsOk());
    for (size_t i = 0; i < u.size(); ++i) {
      double sum = 0;
      for (int rank = 0; rank < 4; ++rank) sum += GradientOf(rank, 0, i, step);
      u[i] = 0.9 * u[i] + sum;
      ASSERT_NEAR(world.values(0, 0)[i], kScale * u[i], 2e-5) << step << " " << i;
    }
  }
}

// --- What is kept, saved and restored, also on other hosts ---

std::vector<std::vector<std::byte>> SaveAll(ExchangeWorld& world) {
  std::vector<std::vector<std::byte>> saved;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    saved.push_back(compression::SaveState(std::span<const compression::StateArrays>(world.exchange(rank).state())));
  }
  return saved;
}

// Rank r takes what those saved whose number is r modulo the number of ranks.
void RestoreAll(ExchangeWorld& world, const std::vector<std::vector<std::byte>>& saved) {
  for (int rank = 0; rank < world.ranks(); ++rank) {
    std::vector<std::span<const std::byte>> own;
    for (size_t from = static_cast<size_t>(rank); from < saved.size(); from += static_cast<size_t>(world.ranks())) {
      own.emplace_back(saved[from]);
    }
    const auto state = world.exchange(rank).state();
    ASSERT_THAT(compression::RestoreState(own, std::span<const compression::StateArrays>(state)), IsOk());
  }
}

TEST(SparseExchange, SavedStateGoesOnAsIfNothingHadHappened) {
  for (const auto& hosts : kHosts) {
    const Compression compression = Dgc{.sparsity = 0.95, .values = ValueType::kF16};
    ExchangeWorld first(compression, Settings(compression), hosts), second(compression, Settings(compression), hosts);
    for (int64_t step = 1; step <= 3; ++step) {
      Fill(first, step);
      ASSERT_THAT(first.Exchange(kAll), IsOk());
    }
    RestoreAll(second, SaveAll(first));
    for (int64_t step = 4; step <= 5; ++step) {
      Fill(first, step);
      Fill(second, step);
      ASSERT_THAT(first.Exchange(kAll), IsOk());
      ASSERT_THAT(second.Exchange(kAll), IsOk());
      for (size_t t = 0; t < kShapes.size(); ++t) {
        for (size_t i = 0; i < first.values(0, t).size(); ++i) {
          ASSERT_EQ(first.values(0, t)[i], second.values(0, t)[i]) << step << " " << t << " " << i;
        }
      }
    }
  }
}

TEST(SparseExchange, StateMovesToOtherHosts) {
  const Compression compression = TopK{.sparsity = 0.9};
  std::vector<std::vector<int>> stages = {{0, 0, 1, 1}, {0, 1}, {0, 0, 0, 1}, {0, 0, 1, 1, 1, 1}, {0, 1, 2}};
  Ledger ledger;
  std::vector<std::vector<std::byte>> saved;
  int64_t step = 0;
  std::unique_ptr<ExchangeWorld> world;
  for (const auto& hosts : stages) {
    world = std::make_unique<ExchangeWorld>(compression, Settings(compression), hosts);
    if (!saved.empty()) RestoreAll(*world, saved);
    for (int i = 0; i < 2; ++i) {
      Fill(*world, ++step);
      ASSERT_THAT(world->Exchange(kAll), IsOk());
      ledger.Count(*world, step);
    }
    saved = SaveAll(*world);
  }
  ledger.ExpectNothingIsLost(*world, false);
}

}  // namespace
}  // namespace gyre
