#include "collectives/gpu_counts.h"

#include "absl/strings/str_cat.h"

namespace gyre::internal {

absl::Status CountsAgree(std::span<const int64_t> table, int size) {
  const size_t row = 2 * static_cast<size_t>(size);
  const auto entry = [&](int rank, int column) {
    return table[static_cast<size_t>(rank) * row + static_cast<size_t>(column)];
  };
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const int64_t sends = entry(from, to), expects = entry(to, size + from);
      if (sends == expects) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", from, " sends ", sends, " elements to rank ", to, ", which expects ", expects));
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre::internal
