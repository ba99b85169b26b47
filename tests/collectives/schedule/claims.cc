#include "collectives/schedule/claims.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

// `check(value, rank, block)` of every unit.
template <typename Check>
absl::Status ForAll(const Outcome& outcome, Check&& check) {
  for (int rank = 0; rank < outcome.ranks; ++rank) {
    for (int block = 0; block < outcome.blocks; ++block) {
      for (int unit = 0; unit < outcome.UnitsOf(block); ++unit) {
        const absl::Status status = check(outcome.At(rank, block, unit), rank, block);
        if (!status.ok()) return Annotate(status, absl::StrCat("rank ", rank, ", block ", block, ", unit ", unit));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Is(const Outcome& outcome, Value value, Value expected) {
  if (value == expected) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(outcome.values.Describe(value), " where ", outcome.values.Describe(expected), " should be"));
}

}  // namespace

absl::Status AllReduced(const Outcome& outcome, int /*root*/) {
  return ForAll(outcome, [&](Value value, int rank, int block) {
    const Value first = outcome.At(0, block, 0);
    if (rank == 0) RETURN_IF_ERROR(outcome.values.OnceFromEach(value, block));
    if (value == first) return absl::OkStatus();
    return absl::InternalError("combined in another tree than rank 0's first unit");
  });
}

absl::Status ReduceScattered(const Outcome& outcome, int /*root*/) {
  return ForAll(outcome, [&](Value value, int rank, int block) {
    return block == rank ? outcome.values.OnceFromEach(value, block) : absl::OkStatus();
  });
}

absl::Status AllGathered(const Outcome& outcome, int /*root*/) {
  return ForAll(outcome,
                [&](Value value, int, int block) { return Is(outcome, value, outcome.values.Leaf(block, block)); });
}

absl::Status Broadcasted(const Outcome& outcome, int root) {
  return ForAll(outcome,
                [&](Value value, int, int block) { return Is(outcome, value, outcome.values.Leaf(root, block)); });
}

absl::Status Reduced(const Outcome& outcome, int root) {
  return ForAll(outcome, [&](Value value, int rank, int block) {
    return rank == root ? outcome.values.OnceFromEach(value, block) : absl::OkStatus();
  });
}

absl::Status Exchanged(const Outcome& outcome, int /*root*/) {
  return ForAll(outcome, [&](Value value, int rank, int block) {
    const int from = block - outcome.ranks;
    const bool came_in = from >= 0 && from != rank;
    return Is(outcome, value, came_in ? outcome.values.Leaf(from, rank) : outcome.values.Leaf(rank, block));
  });
}

absl::Status AllHaveCome(const Outcome& outcome, int /*root*/) {
  return ForAll(outcome, [&](Value value, int, int block) { return outcome.values.AnyOfEach(value, block); });
}

}  // namespace gyre::internal
