// Plan: which gradients travel together, and in which order. Pure: equal inputs make equal plans on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gyre/dtype.h"

namespace gyre::fusion {

// The most elements a gradient may have, so that every plan can be saved.
inline constexpr int64_t kMostElements = int64_t{1} << 40;

// What a planner knows of a gradient.
struct TensorInfo {
  std::string name;
  int64_t count = 0;  // elements, 0 or more
  DType dtype = DType::kF32;

  int64_t bytes() const { return count * DTypeSize(dtype); }
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

// Tensors that are reduced together, laid out one after the other, each aligned to kAlignment bytes.
struct Bucket {
  DType dtype = DType::kF32;
  std::vector<int> tensors = {};      // indices into the list that was planned, in the order of the layout
  std::vector<int64_t> offsets = {};  // of each of them: where its elements begin in the bucket, in elements
  int64_t count = 0;                  // elements of the bucket, gaps included

  int64_t bytes() const { return count * DTypeSize(dtype); }
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

inline constexpr int64_t kAlignment = 128;  // as much as the arena's: two cache lines

// What travels at a time: elements of a bucket's layout.
struct Turn {
  int bucket = 0;
  int64_t begin = 0;
  int64_t count = 0;

  friend bool operator==(const Turn&, const Turn&) = default;
};

// Buckets in the order in which they are reduced. Every tensor is in exactly one.
struct Plan {
  std::vector<Bucket> buckets = {};

  // Empty: whole buckets, in their order. Else every bucket from its beginning to its end, in one turn; a bucket of one
  // tensor may take several, with others' between them. Buckets are numbered in the order of their first turns, and
  // turns begin at multiples of kAlignment bytes.
  std::vector<Turn> turns = {};

  friend bool operator==(const Plan&, const Plan&) = default;
};

// Tells plans apart: equal plans have equal hashes, on every machine of the same byte order.
uint64_t Hash(const Plan& plan);

// Whether turns are as Plan wants them.
bool HasRightTurns(const Plan& plan);

// A bucket of these tensors in this order. REQUIRES: all have the dtype of the first; there is one.
Bucket MakeBucket(std::span<const TensorInfo> tensors, std::vector<int> members);

// Greedy: goes through the tensors in `order` (of readiness) and closes a bucket when the next tensor would take it
// beyond `bytes`. Tensors of different dtypes fill buckets of their own, and buckets come in the order in which their
// last tensors become ready. What becomes ready last is reduced with nothing to hide behind, so the end of the order is
// a small bucket of its own, of bytes / 8 at most unless one tensor is larger.
// REQUIRES: `order` has each index of `tensors` once, bytes > 0.
Plan PlanBySize(std::span<const TensorInfo> tensors, std::span<const int> order, int64_t bytes);

// A plan with the tensors that it is for, as it is saved.
struct SavedPlan {
  std::vector<TensorInfo> tensors;
  Plan plan;

  friend bool operator==(const SavedPlan&, const SavedPlan&) = default;
};

// Lines of text; names are escaped, so any bytes will do.
std::string ToText(const SavedPlan& saved);

// The inverse. kDataLoss says what is wrong with the text: cut short, altered, not a plan, or not a plan for exactly
// its tensors. Any bytes are safe to give.
absl::StatusOr<SavedPlan> FromText(std::string_view text);

}  // namespace gyre::fusion
