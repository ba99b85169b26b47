// The pure parts of a balanced split-reduce of sparse tensors: positions are cut into a region for each rank, which
// adds up what all ranks send of it and tells all the sum. Li, Hoefler, "Near-Optimal Sparse Allreduce for Distributed
// Deep Learning" (Ok-Topk), PPoPP 2022, section 3.1; its selection by the sums is opt-in (global_choice.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "compression/codec.h"
#include "compression/sparse.h"

namespace gyre::compression {

// Where each of `parts` regions of nearly the same length begins, and where the last one ends.
std::vector<int64_t> EvenCuts(int64_t count, int parts);

// Where region `part` of `parts` would have to begin for all to hold as many of these positions (ascending, < count).
// Does not fall as `part` rises. REQUIRES: 0 <= part < parts
int64_t BalancedCut(std::span<const uint32_t> positions, int64_t count, int part, int parts);

// How many elements of all are chosen by one of `ranks` at least, where each chooses such a share by itself.
double UnionDensity(double density, int ranks);

// How ranks that hold so many bytes each, one after the other, come to hold the same bytes evenly (section 3.1 of the
// paper, "balance"): what `rank` gives to each and takes from each, and what each holds then.
struct Evened {
  std::vector<int64_t> given, taken, held;
};
Evened EvenOut(std::span<const int64_t> bytes, int rank);

// Whether to: as in the paper where one holds more than four times the mean, and enough for a call more to pay.
bool IsUneven(std::span<const int64_t> bytes);

// Adds up one region. Keeps its memory from one to the next. Not thread-safe.
class RegionSum {
 public:
  // Begins a region of `count` elements, all 0.
  void Begin(int64_t count) { sum_.assign(static_cast<size_t>(count), 0.0f); }

  // sum += scale * a payload. kDataLoss as Decoder::DecodeAdd.
  absl::Status Add(std::span<const std::byte> bytes, float scale) { return decoder_.DecodeAdd(bytes, scale, sum_); }

  // The magnitudes, above 0, of elements [begin, end): appended to `out`. Not those of NaN.
  void AppendMagnitudes(int64_t begin, int64_t end, std::vector<float>& out) const;

  // Takes elements [begin, end) of the region of no larger a magnitude than `threshold` for 0: they are not told.
  void Drop(int64_t begin, int64_t end, float threshold);

  // Replaces `out` by the smaller payload of the sum: of the elements that are not 0, whose positions are a bitmap
  // where that is less, or dense. Leaves in sum() what receivers will not get.
  void Encode(const SparseOptions& options, std::vector<std::byte>& out);

  std::span<const float> sum() const { return sum_; }

 private:
  Decoder decoder_;
  std::vector<float> sum_, values_;
  std::vector<uint32_t> positions_;
};

// Reads what RegionSum::Encode wrote. Keeps its memory from one to the next. Not thread-safe.
class RegionReader {
 public:
  // Of a region of `count` elements. kDataLoss if the bytes are anything else.
  absl::Status Read(std::span<const std::byte> bytes, int64_t count);

  // What the last Read that was OK has read: positions in the region, ascending, and their elements.
  std::span<const uint32_t> positions() const { return dense_ ? positions_ : sparse_.indices(); }
  std::span<const float> values() const { return dense_ ? values_ : sparse_.values(); }

 private:
  bool dense_ = false;
  SparseDecoder sparse_;
  Decoder decoder_;
  std::vector<uint32_t> positions_;
  std::vector<float> values_;
};

}  // namespace gyre::compression
