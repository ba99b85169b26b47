// Symbolic values: what a block holds after some steps, as the tree of combinations that made it. Equal numbers are
// equal trees, so that two ranks with the same number have the same bits, whatever is combined, as long as that is
// commutative; it need not be associative.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace gyre::internal {

using Value = int32_t;

class Values {
 public:
  Values(int ranks, int blocks) : ranks_(ranks), blocks_(blocks) {}

  // What `rank` has in `block` before the first step.
  Value Leaf(int rank, int block) const { return rank * blocks_ + block; }

  // The same for (a, b) as for (b, a).
  Value Combine(Value a, Value b) { return a < b ? CombineInOrder(a, b) : CombineInOrder(b, a); }

  // Of a reduction that is not commutative: (a, b) is not (b, a).
  Value CombineInOrder(Value a, Value b);

  // The value combines each rank's leaf of `block` exactly once, and nothing else.
  absl::Status OnceFromEach(Value value, int block) const;

  // Each rank's leaf of `block` is in it, however often.
  absl::Status AnyOfEach(Value value, int block) const;

  // "rank 3's block 0", "a combination of 4 blocks".
  std::string Describe(Value value) const;

 private:
  struct Node {
    Value left;
    Value right;
    int64_t leaves;
  };

  bool IsLeaf(Value value) const { return value < ranks_ * blocks_; }
  const Node& NodeOf(Value value) const { return nodes_[static_cast<size_t>(value - ranks_ * blocks_)]; }
  int64_t Leaves(Value value) const { return IsLeaf(value) ? 1 : NodeOf(value).leaves; }

  const int ranks_;
  const int blocks_;
  std::vector<Node> nodes_;  // of all values that are no leaves, in the order of their numbers
  std::unordered_map<uint64_t, Value> made_;
};

}  // namespace gyre::internal
