#include "runtime/compression_vote.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace gyre::internal {
namespace {

using Costs = std::vector<std::optional<PartCosts>>;  // of one rank, by part

constexpr CompressionTerms kTerms{.speed = {2e-9, 1e-9}, .latency = 3e-5, .bytes_per_second = 1e9};

// What all ranks read from the largest of what each has filled in.
VoteOutcome Vote(const std::vector<Costs>& ranks, const std::vector<CompressionTerms>& terms = {}) {
  std::vector<double> largest;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<double> ballot = FillBallot(terms.empty() ? kTerms : terms[rank], ranks[rank]);
    if (largest.empty()) largest = ballot;
    EXPECT_EQ(ballot.size(), largest.size());
    for (size_t i = 0; i < ballot.size(); ++i) largest[i] = std::max(largest[i], ballot[i]);
  }
  return ReadVote(largest);
}

// What a rank may think of a part: the other way is clearly sooner; not clearly; or it has measured nothing.
enum Opinion : uint8_t { kOtherWay, kAsItIs, kNone };

std::optional<PartCosts> CostsOf(Opinion opinion, bool compressed) {
  if (opinion == kNone) return std::nullopt;
  return PartCosts{compressed, (opinion == kOtherWay) == compressed ? 2.0 : 1.0,
                   (opinion == kOtherWay) == compressed ? 1.0 : 2.0};
}

TEST(CompressionVote, APartChangesIfAllRanksWantItWhateverTheirNumber) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    int patterns = 1;
    for (int i = 0; i < ranks; ++i) patterns *= 3;
    for (int pattern = 0; pattern < patterns; ++pattern) {
      std::vector<Costs> costs;
      bool all = true;
      for (int left = pattern; std::ssize(costs) < ranks; left /= 3) {
        const auto opinion = static_cast<Opinion>(left % 3);
        all = all && opinion == kOtherWay;
        // Both directions, between parts of which all are, or none is, of another mind.
        costs.push_back({CostsOf(kOtherWay, true), CostsOf(opinion, true), CostsOf(kAsItIs, false),
                         CostsOf(opinion, false), CostsOf(kOtherWay, false)});
      }
      const std::vector<bool> expected = {true, all, false, all, true};
      EXPECT_EQ(Vote(costs).changes, expected) << ranks << " ranks, pattern " << pattern;
    }
  }
}

TEST(CompressionVote, WhatTakesAsLongStaysAndATenthIsNoReason) {
  for (const double dense : {1e-6, 1.0, 3e4}) {
    for (const double ratio : {0.91, 0.95, 1.0, 1.05, 1.09}) {
      const Costs both = {PartCosts{true, ratio * dense, dense}, PartCosts{false, ratio * dense, dense}};
      EXPECT_EQ(Vote({both, both}).changes, (std::vector<bool>{false, false})) << ratio;
    }
    const Costs slower = {PartCosts{true, 1.11 * dense, dense}, PartCosts{false, 1.11 * dense, dense}};
    EXPECT_EQ(Vote({slower, slower}).changes, (std::vector<bool>{true, false}));
    const Costs faster = {PartCosts{true, 0.89 * dense, dense}, PartCosts{false, 0.89 * dense, dense}};
    EXPECT_EQ(Vote({faster, faster}).changes, (std::vector<bool>{false, true}));
  }
  const Costs nothing = {PartCosts{true, 0, 0}, PartCosts{false, 0, 0}};
  EXPECT_EQ(Vote({nothing}).changes, (std::vector<bool>{true, false})) << "dense, where both are free";
}

// With the same measurements, whatever they are, no vote takes back what the one before has changed.
TEST(CompressionVote, DoesNotGoBackAndForth) {
  for (int first = 50; first <= 150; ++first) {
    for (int second = 50; second <= 150; ++second) {
      for (const bool compressed : {false, true}) {
        const auto vote = [&](bool now) -> bool {
          return Vote({{PartCosts{now, first / 100.0, 1}}, {PartCosts{now, second / 100.0, 1}}}).changes[0];
        };
        EXPECT_FALSE(vote(compressed) && vote(!compressed)) << first << " " << second;
      }
    }
  }
}

TEST(CompressionVote, TermsAreTheSlowestThatAnyRankHas) {
  const std::vector<CompressionTerms> terms = {
      {.speed = {4e-9, 1e-9}, .latency = 2e-5, .bytes_per_second = 3e9},
      {.speed = {2e-9, 5e-9}, .latency = 1e-5, .bytes_per_second = 1e9},
      {.speed = {1e-9, 2e-9}, .latency = 3e-5, .bytes_per_second = 2e9},
  };
  std::vector<size_t> order = {0, 1, 2};
  do {
    const VoteOutcome outcome = Vote({{}, {}, {}}, {terms[order[0]], terms[order[1]], terms[order[2]]});
    EXPECT_EQ(outcome.terms.speed.encode, 4e-9);
    EXPECT_EQ(outcome.terms.speed.decode, 5e-9);
    EXPECT_EQ(outcome.terms.latency, 3e-5);
    EXPECT_DOUBLE_EQ(outcome.terms.bytes_per_second, 1e9);
    EXPECT_TRUE(outcome.changes.empty());
  } while (std::ranges::next_permutation(order).found);
}

}  // namespace
}  // namespace gyre::internal
