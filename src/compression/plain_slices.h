// The gradients that go along with a sparse exchange as they are, in halves where its values are: cut into a slice for
// each rank, which adds up what all have sent of it. Pure. As quantised gradients are (docs/decisions/
// compressed_exchange.md), an element is rounded twice, by its sender and as a sum, and both errors are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/payload.h"

namespace gyre::compression {

// Keeps its memory from one part to the next. Not thread-safe.
class PlainSlices {
 public:
  PlainSlices(int rank, int ranks, float scale) : rank_(rank), ranks_(ranks), scale_(scale) {}

  // Begins with these elements of this rank. `kind`: kF32, or kF16 or kBF16, and then `kept` is what earlier steps kept
  // of each element. REQUIRES: `kept` has as many, or with kF32 none.
  void Begin(PayloadKind kind, std::vector<float> elements, std::vector<float> kept);

  // Of what Encode writes, and EncodeSum, for the slice of rank `slice`.
  int64_t bytes(int slice) const;

  // This rank's elements of a slice, with what was kept of them. Once for each slice.
  void Encode(int slice, std::byte* out);

  // What a rank has encoded of this rank's slice: in the order of ranks, from 0 on.
  void Add(const std::byte* from);

  // The sum of this rank's slice, scaled, after all were added.
  void EncodeSum(std::byte* out);

  // The sum of a slice: from now on its elements.
  void Decode(int slice, const std::byte* from);

  std::span<const float> elements() const { return elements_; }
  std::span<const float> kept() const { return kept_; }  // empty with kF32

 private:
  size_t begin(int slice) const { return elements_.size() * static_cast<size_t>(slice) / static_cast<size_t>(ranks_); }
  int64_t count(int slice) const { return static_cast<int64_t>(begin(slice + 1) - begin(slice)); }

  const int rank_, ranks_;
  const float scale_;
  PayloadKind kind_ = PayloadKind::kF32;
  std::vector<float> elements_, kept_, sum_, error_;
};

}  // namespace gyre::compression
