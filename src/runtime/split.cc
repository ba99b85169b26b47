#include "runtime/split.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

// What a rank tells the others: its region, and its list padded to the parent's size.
struct Proposal {
  int64_t region;
  std::vector<int64_t> ranks;
};

constexpr int64_t kNobody = -1;
constexpr int64_t kNoRoom = -3;
// A list that cannot be written down: with entries that are no ranks, or too many of them.
constexpr int64_t kUnusable = -2;

bool Usable(std::span<const int> ranks, int size) {
  return static_cast<int>(ranks.size()) <= size &&
         std::ranges::all_of(ranks, [size](int rank) { return rank >= 0 && rank < size; });
}

std::vector<int64_t> EncodeProposal(std::span<const int> ranks, int size, int64_t region) {
  std::vector<int64_t> words(static_cast<size_t>(size) + 1, kNobody);
  words[0] = region;
  if (Usable(ranks, size)) {
    std::ranges::copy(ranks, words.begin() + 1);
  } else {
    words[1] = kUnusable;
  }
  return words;
}

Proposal DecodeProposal(std::span<const int64_t> words) {
  Proposal proposal{words[0], {words.begin() + 1, words.end()}};
  std::erase(proposal.ranks, kNobody);
  return proposal;
}

// Looks at all proposals, so that every rank comes to the same verdict.
absl::Status CheckProposals(const std::vector<Proposal>& proposals) {
  for (size_t r = 0; r < proposals.size(); ++r) {
    const auto& ranks = proposals[r].ranks;
    const std::string who = absl::StrCat("split: rank ", r, "'s list [", absl::StrJoin(ranks, ", "), "]");
    if (ranks.empty()) continue;
    if (proposals[r].region == kNoRoom) {
      return absl::ResourceExhaustedError(absl::StrCat("split: rank ", r, " has made too many communicators"));
    }
    if (ranks[0] == kUnusable) {
      return absl::InvalidArgumentError(absl::StrCat("split: rank ", r, "'s list names ranks that do not exist"));
    }
    if (std::ranges::find(ranks, static_cast<int64_t>(r)) == ranks.end()) {
      return absl::InvalidArgumentError(absl::StrCat(who, " lacks the rank itself"));
    }
    auto sorted = ranks;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end()) {
      return absl::InvalidArgumentError(absl::StrCat(who, " names a rank twice"));
    }
    for (int64_t member : ranks) {
      const auto& theirs = proposals[static_cast<size_t>(member)].ranks;
      if (theirs == ranks) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(who, " differs from rank ", member, "'s [", absl::StrJoin(theirs, ", "), "]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t SplitId(uint64_t parent, uint64_t call, int first_rank) {
  const uint64_t what[] = {parent, call, static_cast<uint64_t>(first_rank)};
  return XXH3_64bits(what, sizeof(what));
}

absl::StatusOr<SplitResult> AgreeOnSplit(const SplitParent& parent, std::span<const int> ranks,
                                         const GatherIntegers& gather) {
  const int size = static_cast<int>(parent.ranks.size());
  SplitResult result;
  int64_t region = kNobody;
  if (!ranks.empty() && Usable(ranks, size)) {
    for (int member : ranks) result.ranks.push_back(parent.ranks[static_cast<size_t>(member)]);
    // A rank without room says so to all, so that all fail alike.
    region = parent.reserve(result.ranks).value_or(kNoRoom);
  }
  const std::vector<int64_t> own = EncodeProposal(ranks, size, region);
  std::vector<int64_t> all(own.size() * static_cast<size_t>(size));
  RETURN_IF_ERROR(gather(own, all));

  std::vector<Proposal> proposals;
  for (size_t r = 0; r < static_cast<size_t>(size); ++r) {
    proposals.push_back(DecodeProposal(std::span(all).subspan(r * own.size(), own.size())));
  }
  RETURN_IF_ERROR(CheckProposals(proposals));
  for (int member : ranks) result.regions.push_back(proposals[static_cast<size_t>(member)].region);
  return result;
}

}  // namespace gyre::internal
