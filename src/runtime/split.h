// Splitting a group into smaller ones (process sets).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/shm/group.h"

namespace gyre::internal {

// Fills `all` with every rank's `own`, in rank order; collective over the parent.
using GatherIntegers = std::function<absl::Status(const std::vector<int64_t>& own, std::vector<int64_t>& all)>;

// This rank's part of Communicator::Split. `ranks`: this rank's group, as ranks of the parent, or empty: then the
// result is null. Wrong lists (a rank that is not there, twice there, or whose own list differs) are kInvalidArgument
// on every rank.
absl::StatusOr<std::shared_ptr<Group>> SplitGroup(Group& parent, std::span<const int> ranks,
                                                  const GatherIntegers& gather);

}  // namespace gyre::internal
