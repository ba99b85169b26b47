// Exact selection of a tensor's k largest elements in one pass over it.
//
// The pass (accumulate.h) picks out what is above a threshold that is guessed from the previous step: a little more
// than k elements. Among these the k largest are found and the others put back. If they become too many on the way,
// they are cut to the k largest so far, and the threshold rises; so the first step needs no guess. If in the end they
// are too few, what was left is passed over again, with lower thresholds, in up to four passes: that is a rescan, and
// is counted. Where fewer than k elements are not 0, the next step picks out all that are not, and needs no rescan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/accumulate.h"

namespace gyre::compression {

// Of one tensor. Not thread-safe; the memory it takes is some four times k entries.
class Selector {
 public:
  struct Result {
    int64_t non_finite = 0;  // of the gradient: see PassResult
    bool rescanned = false;
  };

  // Accumulates, and picks out the `k` elements of `count` with the largest |v|, fewer if fewer are not 0; of equal
  // ones those at lower positions. What is picked out is cleared in the arrays, as AccumulateAndSelect does; the
  // outcome does not depend on earlier calls. REQUIRES: 1 <= k <= count < 2^32.
  Result SelectLargest(const Accumulation& arrays, int64_t count, int64_t k);

  // Accumulates, and picks out all with |v| > threshold; if these are more than 2 * k, the k largest, as SelectLargest.
  Result SelectAbove(const Accumulation& arrays, int64_t count, int64_t k, float threshold);

  // What was picked out: positions ascend. Writable: encoders leave the rounding errors in values.
  std::span<const uint32_t> indices() const { return {indices_.data(), static_cast<size_t>(found_.count)}; }
  std::span<const float> momenta() const {  // what u was there, until the next call; none if there is no u
    return {momenta_.data(), momenta_.empty() ? 0 : static_cast<size_t>(found_.count)};
  }
  std::span<float> values() { return {velocities_.data(), static_cast<size_t>(found_.count)}; }

 private:
  void Reserve(int64_t capacity, bool momentum);
  int64_t Pass(const Accumulation& arrays, int64_t count, int64_t k, float& threshold);
  uint32_t KthKey(int64_t k);
  float Cut(const Accumulation& arrays, int64_t k);
  void Rescan(const Accumulation& arrays, int64_t count, int64_t missing);
  void PutBack(const Accumulation& arrays);
  void SortByPosition(size_t first_part);
  void Guess(int64_t seen, int64_t k, float kth);

  std::vector<uint32_t> indices_;
  std::vector<float> velocities_, momenta_;
  struct Entry {
    uint32_t index;
    float velocity, momentum;
  };
  std::vector<uint32_t> keys_, bins_;  // scratch
  std::vector<Entry> rejected_;        // scratch
  Candidates found_;
  bool cut_ = false;  // whether the last pass found more than there was room for
  float threshold_ = 0;
  float previous_ = 0;    // the last step's k-th value
  double exponent_ = 10;  // of the number of elements above a threshold
  double caution_ = 1;    // how many times more candidates than usual to aim at
};

}  // namespace gyre::compression
