#include "runtime/compression_vote.h"

namespace gyre::internal {

namespace {

constexpr size_t kTerms = 4;  // numbers of a ballot before its parts
constexpr double kStay = 1, kChange = 0;

}  // namespace

std::vector<double> FillBallot(const CompressionTerms& own, std::span<const std::optional<PartCosts>> parts) {
  std::vector<double> ballot = {own.speed.encode, own.speed.decode, own.latency, 1 / own.bytes_per_second};
  for (const std::optional<PartCosts>& part : parts) {
    const bool changes = part && part->compressed != StaysOrTurnsCompressed(part->compressed, part->compressed_seconds,
                                                                            part->dense_seconds);
    ballot.push_back(changes ? kChange : kStay);
  }
  return ballot;
}

VoteOutcome ReadVote(std::span<const double> largest) {
  VoteOutcome outcome{.terms = {.speed = {.encode = largest[0], .decode = largest[1]},
                                .latency = largest[2],
                                .bytes_per_second = 1 / largest[3]}};
  for (const double vote : largest.subspan(kTerms)) outcome.changes.push_back(vote == kChange);
  return outcome;
}

}  // namespace gyre::internal
