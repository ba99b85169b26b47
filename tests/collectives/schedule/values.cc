#include "collectives/schedule/values.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gyre::internal {

namespace {

// What is doubled in every round would not fit a number otherwise.
constexpr int64_t kMany = int64_t{1} << 40;

}  // namespace

Value Values::CombineInOrder(Value a, Value b) {
  const uint64_t key = static_cast<uint64_t>(a) << 32 | static_cast<uint32_t>(b);
  const auto [entry, is_new] = made_.try_emplace(key, ranks_ * blocks_ + static_cast<Value>(nodes_.size()));
  if (is_new) nodes_.push_back({a, b, std::min(kMany, Leaves(a) + Leaves(b))});
  return entry->second;
}

absl::Status Values::OnceFromEach(Value value, int block) const {
  if (Leaves(value) != ranks_) {
    return absl::InternalError(absl::StrCat(Describe(value), " where ", ranks_, " were to be combined"));
  }
  std::vector<bool> seen(static_cast<size_t>(ranks_));
  for (std::vector<Value> left = {value}; !left.empty();) {
    const Value next = left.back();
    left.pop_back();
    if (!IsLeaf(next)) {
      left.push_back(NodeOf(next).left);
      left.push_back(NodeOf(next).right);
      continue;
    }
    const auto rank = static_cast<size_t>(next / blocks_);
    if (next % blocks_ != block) return absl::InternalError(absl::StrCat(Describe(next), " is in block ", block));
    if (seen[rank]) return absl::InternalError(absl::StrCat(Describe(next), " was combined twice"));
    seen[rank] = true;
  }
  return absl::OkStatus();
}

absl::Status Values::AnyOfEach(Value value, int block) const {
  std::vector<bool> seen(static_cast<size_t>(ranks_ * blocks_) + nodes_.size());
  for (std::vector<Value> left = {value}; !left.empty();) {
    const Value next = left.back();
    left.pop_back();
    if (seen[static_cast<size_t>(next)]) continue;
    seen[static_cast<size_t>(next)] = true;
    if (IsLeaf(next)) continue;
    left.push_back(NodeOf(next).left);
    left.push_back(NodeOf(next).right);
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (seen[static_cast<size_t>(Leaf(rank, block))]) continue;
    return absl::InternalError(absl::StrCat(Describe(Leaf(rank, block)), " is missing"));
  }
  return absl::OkStatus();
}

std::string Values::Describe(Value value) const {
  if (IsLeaf(value)) return absl::StrCat("rank ", value / blocks_, "'s block ", value % blocks_);
  return absl::StrCat("a combination of ", Leaves(value), " blocks");
}

}  // namespace gyre::internal
