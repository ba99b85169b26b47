// The algorithms that a collective between hosts can be carried out with, by name, and which of them are forced.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "collectives/schedule/schedule.h"

namespace gyre::internal {

enum class Collective : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce, kAllToAll };
inline constexpr int kCollectiveCount = 6;

enum class Algorithm : uint8_t {
  kRing,
  kCirculant,
  kHalvingDoubling,
  kRecursiveDoubling,
  kDoubleTree,
  kBinomial,
  kChain,
  kPairwise,
  kBruck,
};

std::string_view NameOf(Collective operation);  // "allreduce"
std::string_view NameOf(Algorithm algorithm);   // "recursive_doubling"
std::span<const Algorithm> AlgorithmsOf(Collective operation);

// How many blocks the schedule has that the whole is cut into: an alltoall's pieces for all ranks, in its case.
int BlocksOf(Algorithm algorithm, int size);

// One rank's schedule. Pure. REQUIRES: the operation has the algorithm; 0 <= rank, root < size.
Schedule MakeSchedule(Collective operation, Algorithm algorithm, int rank, int size, int root = 0);

// What GYRE_ALGORITHMS or RuntimeOptions::algorithms say.
struct ForcedAlgorithms {
  std::array<std::optional<Algorithm>, kCollectiveCount> by_operation{};
  bool nominal = false;  // choose by nominal numbers instead of measured ones: alike in every run

  std::optional<Algorithm> Of(Collective operation) const { return by_operation[static_cast<size_t>(operation)]; }

  // Equal for what is equal; what Parse accepts.
  std::string ToString() const;
};

// "allreduce=ring,alltoall=bruck", "nominal", or both; empty for nothing. kInvalidArgument names what is not known, and
// what is.
absl::StatusOr<ForcedAlgorithms> ParseForcedAlgorithms(std::string_view text);

}  // namespace gyre::internal
