// Splitting a group into smaller ones (process sets).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::internal {

// Fills `all` with every rank's `own`, in rank order; collective over the parent.
using GatherIntegers = std::function<absl::Status(const std::vector<int64_t>& own, std::vector<int64_t>& all)>;

// What a split is made from.
struct SplitParent {
  std::vector<int> ranks;  // of the job, by rank of the parent

  // Memory in this rank's control segment for a communicator of these ranks of the job; where it begins.
  std::function<absl::StatusOr<int64_t>(const std::vector<int>& ranks)> reserve;
};

// What it makes, as seen by one rank.
struct SplitResult {
  std::vector<int> ranks;        // of the job, by rank of the new communicator; empty: this rank is in none
  std::vector<int64_t> regions;  // likewise: where each has reserved memory
};

// What tells a communicator from all others of the job: made from its parent's, the number of the call of Split, and
// its first rank.
uint64_t SplitId(uint64_t parent, uint64_t call, int first_rank);

// This rank's part of Communicator::Split. `ranks`: this rank's group, as ranks of the parent, or empty. Wrong lists (a
// rank that is not there, twice there, or whose own list differs) are kInvalidArgument on every rank.
absl::StatusOr<SplitResult> AgreeOnSplit(const SplitParent& parent, std::span<const int> ranks,
                                         const GatherIntegers& gather);

}  // namespace gyre::internal
