// How ranks whose measurements differ come to the same choice of which parts of the gradients go compressed from now
// on: each fills in a ballot, all take the largest of each number, and each reads the outcome from that. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/compression_cost.h"

namespace gyre::internal {

// What codec and network take: of several ranks', the slowest counts.
struct CompressionTerms {
  CodecSpeed speed{};
  double latency = 0;           // as NetworkShape has them
  double bytes_per_second = 1;  // more than 0
};

// A part that the codec covers, as one rank sees it.
struct PartCosts {
  bool compressed = false;  // now
  double compressed_seconds = 0;
  double dense_seconds = 0;
};

// Of this rank. `parts`: nothing for those of which no rank may change how they go.
std::vector<double> FillBallot(const CompressionTerms& own, std::span<const std::optional<PartCosts>> parts);

struct VoteOutcome {
  CompressionTerms terms{};
  std::vector<bool> changes{};  // by part: every rank wants it to go the other way from now on
};

// REQUIRES: `largest` is of ballots of as many parts, at least one ballot
VoteOutcome ReadVote(std::span<const double> largest);

}  // namespace gyre::internal
