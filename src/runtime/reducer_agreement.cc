#include "runtime/reducer_agreement.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "fusion/registry.h"
#include "xxhash.h"

namespace gyre::internal {

namespace {

// The text of rank `root`, on all ranks.
absl::StatusOr<std::string> TextOf(Communicator& communicator, int root, const std::string& own,
                                   const CallOptions& options) {
  std::array<int64_t, 1> length = {std::ssize(own)};
  RETURN_IF_ERROR(communicator.Broadcast(length, root, options));
  std::string text = own;
  text.resize(static_cast<size_t>(length[0]));
  RETURN_IF_ERROR(communicator.Broadcast({text.data(), length[0], DType::kU8}, root, options));
  return text;
}

bool IsPermutation(const std::vector<int>& order) {
  std::vector<bool> seen(order.size());
  for (const int index : order) {
    if (index < 0 || index >= std::ssize(order) || seen[static_cast<size_t>(index)]) return false;
    seen[static_cast<size_t>(index)] = true;
  }
  return true;
}

}  // namespace

absl::Status AgreeOnGradients(Communicator& communicator, const std::string& text, const CallOptions& options) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  const std::array<int64_t, 2> mine = {static_cast<int64_t>(hash.low64), static_cast<int64_t>(hash.high64)};
  std::vector<int64_t> all(2 * static_cast<size_t>(communicator.size()));
  RETURN_IF_ERROR(communicator.AllGather(mine, all, options));
  int odd = 1;
  const auto same = [&](size_t rank) { return all[2 * rank] == all[0] && all[2 * rank + 1] == all[1]; };
  while (odd < communicator.size() && same(static_cast<size_t>(odd))) ++odd;
  if (odd == communicator.size()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string one, TextOf(communicator, 0, text, options));
  ASSIGN_OR_RETURN(const std::string other, TextOf(communicator, odd, text, options));
  return absl::InvalidArgumentError(
      absl::StrCat("ranks registered different gradients: ", fusion::Difference(one, 0, other, odd)));
}

absl::Status AdoptOrder(Communicator& communicator, std::vector<int>& order, const CallOptions& options) {
  static_assert(sizeof(int) == sizeof(int32_t));
  RETURN_IF_ERROR(communicator.Broadcast({order.data(), std::ssize(order), DType::kI32}, 0, options));
  if (IsPermutation(order)) return absl::OkStatus();
  return absl::DataLossError("rank 0 sent an order of gradients that is none");
}

absl::StatusOr<std::optional<int>> FirstToFail(Communicator& communicator, bool own, const CallOptions& options) {
  std::array<int32_t, 1> failed = {own ? communicator.size() : communicator.rank()};
  const ReduceOptions lowest{.op = ReduceOp::kMin, .timeout = options.timeout};
  RETURN_IF_ERROR(communicator.AllReduce(failed, lowest));
  return failed[0] == communicator.size() ? std::nullopt : std::optional<int>(failed[0]);
}

absl::StatusOr<bool> AllSucceeded(Communicator& communicator, bool own, const CallOptions& options) {
  ASSIGN_OR_RETURN(const std::optional<int> failed, FirstToFail(communicator, own, options));
  return !failed.has_value();
}

absl::Status AgreeOnSuccess(Communicator& communicator, const absl::Status& own, const CallOptions& options) {
  ASSIGN_OR_RETURN(const std::optional<int> failed, FirstToFail(communicator, own.ok(), options));
  if (!own.ok() || !failed) return own;
  return absl::AbortedError(absl::StrCat("rank ", *failed, " could not start its reducer"));
}

}  // namespace gyre::internal
