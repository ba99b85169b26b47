// SparseSplit: what a rank does in a balanced split-reduce of a part's sparse payloads (compression/split_sum.h): cuts
// what it has chosen into a slice for each rank, adds up its own region of all, and puts all regions' sums in place.
// Regions are those in which the step before had as many entries each: no call is made to agree on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "compression/sparse.h"
#include "compression/split_sum.h"

namespace gyre::internal {

// Not thread-safe.
class SparseSplit {
 public:
  // `scale`: by what a sum becomes the result. `options`: of what ranks have chosen, and of sums too where these are
  // `rounded`, or else sums are floats.
  SparseSplit(int rank, int ranks, float scale, const compression::SparseOptions& options, bool rounded)
      : rank_(rank), ranks_(ranks), scale_(scale), options_(options), sum_options_(options) {
    if (!rounded) sum_options_.values = ValueType::kF32;
  }

  // Whether positions in so many elements can be written down.
  static bool Fits(int64_t elements) { return elements <= int64_t{UINT32_MAX}; }

  // Begins with a part: `key` tells it from others, `tensors` are where its results go, and are 0. Add, in their
  // order: this rank's sparse payload of one of them, or of a piece of it. Then Cut.
  void Begin(const std::vector<int>& key, std::vector<std::span<float>> tensors);
  absl::Status Add(std::span<const float> piece, std::span<const std::byte> payload);
  void Cut();

  // What this rank sends to each.
  std::vector<std::byte>& slices() { return slices_; }
  std::span<const int64_t> slice_bytes() const { return slice_bytes_; }

  // Where this rank would have the region of `rank` begin in the next step.
  int64_t ProposedCut(int rank) const;

  // Adds up this rank's region of what each rank has sent of it, one after the other, and encodes the sum. `keep` is
  // told of what rounding takes away (of a tensor's element, as it would have to be sent). kDataLoss
  using Keep = std::function<void(size_t tensor, size_t element, float value)>;
  absl::Status Sum(std::span<const std::byte> received, std::span<const int64_t> bytes, const Keep& keep);
  std::vector<std::byte>& sum() { return sum_bytes_; }

  // Puts the sums of all regions in place. `cuts`: where the regions of the next step begin, by rank. kDataLoss
  absl::Status Deliver(std::span<const std::byte> sums, std::span<const int64_t> bytes, std::span<const int64_t> cuts);

 private:
  int64_t elements() const { return begins_.back(); }
  int64_t region(int rank) const { return (*cuts_)[static_cast<size_t>(rank)]; }

  const int rank_, ranks_;
  const float scale_;
  const compression::SparseOptions options_;
  compression::SparseOptions sum_options_;
  std::map<std::vector<int>, std::vector<int64_t>> cuts_of_;  // by key: one more than there are ranks
  std::vector<int64_t>* cuts_ = nullptr;                      // of the part that was begun
  std::vector<std::span<float>> tensors_;
  std::vector<int64_t> begins_;  // by tensor: its first position; and where the last one ends
  size_t added_ = 0;             // to which tensor something was added last
  std::vector<uint32_t> positions_;
  // As if each piece were its whole tensor: of a mean of proposals that are each of one piece, none would be balanced.
  std::vector<uint32_t> spread_;
  std::vector<float> values_;
  compression::SparseDecoder decoder_;
  compression::RegionSum region_sum_;
  compression::RegionReader reader_;
  std::vector<std::byte> slices_, sum_bytes_, payload_;
  std::vector<int64_t> slice_bytes_;
};

}  // namespace gyre::internal
