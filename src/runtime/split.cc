#include "runtime/split.h"

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

std::vector<int64_t> Encode(std::span<const int> ranks, int size, int64_t region) {
  std::vector<int64_t> words(static_cast<size_t>(size) + 1, kNobody);
  words[0] = region;
  const bool usable = static_cast<int>(ranks.size()) <= size &&
                      std::ranges::all_of(ranks, [size](int rank) { return rank >= 0 && rank < size; });
  if (usable) {
    std::ranges::copy(ranks, words.begin() + 1);
  } else {
    words[1] = kUnusable;
  }
  return words;
}

Proposal Decode(std::span<const int64_t> words) {
  Proposal proposal{words[0], {words.begin() + 1, words.end()}};
  std::erase(proposal.ranks, kNobody);
  return proposal;
}

// Looks at all proposals, so that every rank comes to the same verdict.
absl::Status Check(const std::vector<Proposal>& proposals) {
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
      return absl::InvalidArgumentError(absl::StrCat(who, " differs from rank ", member, "'s [",
                                                     absl::StrJoin(theirs, ", "), "]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Group>> SplitGroup(Group& parent, std::span<const int> ranks,
                                                  const GatherIntegers& gather) {
  const int size = parent.size();
  GroupLayout layout = parent.layout();
  layout.size = std::max<int>(1, static_cast<int>(ranks.size()));
  int64_t region = kNobody;
  if (!ranks.empty()) {
    // A rank without room says so to all, so that all fail alike.
    region = parent.node().ReserveRegion(layout.bytes()).value_or(kNoRoom);
  }
  const std::vector<int64_t> own = Encode(ranks, size, region);
  std::vector<int64_t> all(own.size() * static_cast<size_t>(size));
  RETURN_IF_ERROR(gather(own, all));

  std::vector<Proposal> proposals;
  for (size_t r = 0; r < static_cast<size_t>(size); ++r) {
    proposals.push_back(Decode(std::span(all).subspan(r * own.size(), own.size())));
  }
  RETURN_IF_ERROR(Check(proposals));
  if (ranks.empty()) return nullptr;

  std::vector<int> job_ranks;
  std::vector<int64_t> regions;
  for (int member : ranks) {
    job_ranks.push_back(parent.ranks()[static_cast<size_t>(member)]);
    regions.push_back(proposals[static_cast<size_t>(member)].region);
  }
  return Group::Create(parent.shared_node(), std::move(job_ranks), regions, layout);
}

}  // namespace gyre::internal
