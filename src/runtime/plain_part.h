// PlainPart: the gradients of a part that a sparse exchange carries along as they are, at the width of its values
// (compression/plain_slices.h): each piece (runtime/host_pieces.h) is added up between the ranks that have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/payload.h"
#include "compression/plain_slices.h"
#include "runtime/host_pieces.h"

namespace gyre::internal {

// Not thread-safe.
class PlainPart {
 public:
  // `pieces` outlives it.
  PlainPart(const HostPieces& pieces, int rank, float scale);

  // Begins with this rank's piece of these gradients, one after the other, and what was kept of it: as
  // PlainSlices::Begin. `total`: elements of all pieces of the gradients, by piece.
  void Begin(compression::PayloadKind kind, std::vector<float> elements, std::vector<float> kept,
             std::span<const int64_t> total);

  // Of what this rank sends to `to`, and of what `from` sends to this one: nothing but between those with one piece.
  int64_t bytes_to(int to) const { return shared(to) ? own().bytes(pieces_.host(to)) : 0; }
  int64_t bytes_from(int from) const { return shared(from) ? own().bytes(pieces_.host(rank_)) : 0; }
  void Encode(int to, std::byte* out);
  void Add(int from, const std::byte* bytes);

  // Of the sum that `rank` has made of its slice of its piece.
  int64_t sum_bytes(int rank) const;
  void EncodeSum(std::byte* out);
  void DecodeSum(int rank, const std::byte* from);

  // The sums of a piece, once all are decoded; and what is kept of this rank's.
  std::span<const float> elements(int piece) const { return slices_[static_cast<size_t>(piece)].elements(); }
  std::span<const float> kept() const;

 private:
  bool shared(int other) const { return pieces_.has_piece(rank_) && pieces_.local(other) == pieces_.local(rank_); }
  const compression::PlainSlices& own() const { return slices_[static_cast<size_t>(pieces_.local(rank_))]; }
  compression::PlainSlices& own() { return slices_[static_cast<size_t>(pieces_.local(rank_))]; }

  const HostPieces& pieces_;
  const int rank_;
  std::vector<compression::PlainSlices> slices_;  // by piece
};

}  // namespace gyre::internal
