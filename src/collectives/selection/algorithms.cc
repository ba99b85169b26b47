#include "collectives/selection/algorithms.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "collectives/schedule/binomial.h"
#include "collectives/schedule/bruck.h"
#include "collectives/schedule/chain.h"
#include "collectives/schedule/circulant.h"
#include "collectives/schedule/double_tree.h"
#include "collectives/schedule/halving_doubling.h"
#include "collectives/schedule/pairwise.h"
#include "collectives/schedule/recursive_doubling.h"
#include "collectives/schedule/ring.h"

namespace gyre::internal {

namespace {

constexpr std::string_view kOperationNames[] = {"allreduce", "reduce_scatter", "allgather",
                                                "broadcast", "reduce",         "alltoall"};
static_assert(std::size(kOperationNames) == kCollectiveCount);

constexpr std::string_view kAlgorithmNames[] = {
    "ring",     "circulant", "halving_doubling", "recursive_doubling", "double_tree", "binomial", "chain",
    "pairwise", "bruck"};

constexpr Algorithm kAllReduce[] = {Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kCirculant,
                                    Algorithm::kHalvingDoubling, Algorithm::kDoubleTree};
constexpr Algorithm kSegments[] = {Algorithm::kRing, Algorithm::kCirculant};
constexpr Algorithm kRooted[] = {Algorithm::kBinomial, Algorithm::kChain, Algorithm::kDoubleTree};
constexpr Algorithm kAllToAll[] = {Algorithm::kPairwise, Algorithm::kBruck};

constexpr std::string_view kNominal = "nominal";

template <typename Values>
std::string Names(const Values& values) {
  return absl::StrJoin(values, ", ", [](std::string* out, auto value) { absl::StrAppend(out, ToAbsl(NameOf(value))); });
}

Schedule MakeAllReduce(Algorithm algorithm, int rank, int size) {
  switch (algorithm) {
    case Algorithm::kRecursiveDoubling: return RecursiveDoublingAllReduce(rank, size);
    case Algorithm::kCirculant: return CirculantAllReduce(rank, size);
    case Algorithm::kHalvingDoubling: return HalvingDoublingAllReduce(rank, size);
    case Algorithm::kDoubleTree: return DoubleTreeAllReduce(rank, size);
    default: return RingAllReduce(rank, size);
  }
}

Schedule MakeBroadcast(Algorithm algorithm, int rank, int size, int root) {
  switch (algorithm) {
    case Algorithm::kChain: return ChainBroadcast(rank, size, root);
    case Algorithm::kDoubleTree: return DoubleTreeBroadcast(rank, size, root);
    default: return BinomialBroadcast(rank, size, root);
  }
}

Schedule MakeReduce(Algorithm algorithm, int rank, int size, int root) {
  switch (algorithm) {
    case Algorithm::kChain: return ChainReduce(rank, size, root);
    case Algorithm::kDoubleTree: return DoubleTreeReduce(rank, size, root);
    default: return BinomialReduce(rank, size, root);
  }
}

absl::Status Unknown(absl::string_view entry, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("GYRE_ALGORITHMS (algorithms): \"", entry, "\": ", why));
}

std::vector<Collective> Operations() {
  std::vector<Collective> all;
  for (int number = 0; number < kCollectiveCount; ++number) all.push_back(static_cast<Collective>(number));
  return all;
}

absl::Status ParseEntry(absl::string_view entry, ForcedAlgorithms& forced) {
  if (entry == ToAbsl(kNominal)) {
    forced.nominal = true;
    return absl::OkStatus();
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
  if (parts.size() != 2) return Unknown(entry, "\"nominal\" or OPERATION=ALGORITHM expected");
  const std::vector<Collective> operations = Operations();
  const auto operation = std::ranges::find_if(operations, [&](Collective c) { return ToAbsl(NameOf(c)) == parts[0]; });
  if (operation == operations.end()) return Unknown(entry, absl::StrCat("the operations are ", Names(operations)));
  const std::span<const Algorithm> known = AlgorithmsOf(*operation);
  const auto algorithm = std::ranges::find_if(known, [&](Algorithm a) { return ToAbsl(NameOf(a)) == parts[1]; });
  if (algorithm == known.end()) {
    return Unknown(entry, absl::StrCat("the algorithms of ", parts[0], " are ", Names(known)));
  }
  auto& chosen = forced.by_operation[static_cast<size_t>(*operation)];
  if (chosen) return Unknown(entry, absl::StrCat(parts[0], " is there twice"));
  chosen = *algorithm;
  return absl::OkStatus();
}

}  // namespace

std::string_view NameOf(Collective operation) {
  return kOperationNames[static_cast<size_t>(operation)];
}

std::string_view NameOf(Algorithm algorithm) {
  return kAlgorithmNames[static_cast<size_t>(algorithm)];
}

std::span<const Algorithm> AlgorithmsOf(Collective operation) {
  switch (operation) {
    case Collective::kAllReduce: return kAllReduce;
    case Collective::kBroadcast:
    case Collective::kReduce: return kRooted;
    case Collective::kAllToAll: return kAllToAll;
    case Collective::kReduceScatter:
    case Collective::kAllGather: break;
  }
  return kSegments;
}

int BlocksOf(Algorithm algorithm, int size) {
  switch (algorithm) {
    case Algorithm::kHalvingDoubling: return HalvingDoublingBlocks(size);
    case Algorithm::kDoubleTree: return 2;
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kBinomial:
    case Algorithm::kChain: return 1;
    case Algorithm::kRing:
    case Algorithm::kCirculant:
    case Algorithm::kPairwise:
    case Algorithm::kBruck: break;
  }
  return size;
}

Schedule MakeSchedule(Collective operation, Algorithm algorithm, int rank, int size, int root) {
  const bool ring = algorithm == Algorithm::kRing;
  switch (operation) {
    case Collective::kAllReduce: return MakeAllReduce(algorithm, rank, size);
    case Collective::kReduceScatter: return ring ? RingReduceScatter(rank, size) : CirculantReduceScatter(rank, size);
    case Collective::kAllGather: return ring ? RingAllGather(rank, size) : CirculantAllGather(rank, size);
    case Collective::kBroadcast: return MakeBroadcast(algorithm, rank, size, root);
    case Collective::kReduce: return MakeReduce(algorithm, rank, size, root);
    case Collective::kAllToAll: break;
  }
  return algorithm == Algorithm::kBruck ? BruckAllToAll(rank, size) : PairwiseAllToAll(rank, size);
}

std::string ForcedAlgorithms::ToString() const {
  std::vector<std::string> entries;
  if (nominal) entries.emplace_back(kNominal);
  for (const Collective operation : Operations()) {
    if (const auto algorithm = Of(operation)) {
      entries.push_back(absl::StrCat(ToAbsl(NameOf(operation)), "=", ToAbsl(NameOf(*algorithm))));
    }
  }
  return absl::StrJoin(entries, ",");
}

absl::StatusOr<ForcedAlgorithms> ParseForcedAlgorithms(std::string_view text) {
  ForcedAlgorithms forced;
  if (text.empty()) return forced;
  for (const absl::string_view entry : absl::StrSplit(ToAbsl(text), ',')) RETURN_IF_ERROR(ParseEntry(entry, forced));
  return forced;
}

}  // namespace gyre::internal
