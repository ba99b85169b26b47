// Pieces: a call on tensors that are on a GPU, cut into calls on host memory that pass through slots of one size. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "collectives/call.h"

namespace gyre::internal::staged {

// What lies together both in a slot and in a tensor. In bytes.
struct Span {
  int64_t in_slot = 0;
  int64_t in_tensor = 0;
  int64_t bytes = 0;
};

// One of them. `call` refers to `counts` and `receive_counts`: it is not to be moved once it was made.
struct Piece {
  Call call;
  RankCounts counts, receive_counts;
  absl::InlinedVector<Span, 8> out;   // of the input, into the slot, before the call
  absl::InlinedVector<Span, 8> back;  // out of the slot, into the output, after it
};

class Pieces {
 public:
  // `call`: as it was asked for by rank `rank` of `size`; valid, no barrier. What its spans refer to outlives the
  // object. `longest`: the most elements that any rank sends another, for an alltoall that is not even.
  Pieces(const Call& call, int rank, int size, int64_t slot_bytes, int64_t longest = 0);

  // Whether it takes all ranks to say how many pieces there are: `longest` is needed.
  static bool NeedLongest(const Call& call) { return call.kind == CallKind::kAllToAll && !call.even; }

  // Bytes that a slot must have: of adasum, which is of whole tensors, all of them; otherwise `usual`.
  static int64_t SlotBytes(const Call& call, int64_t usual);

  // Alike on all ranks; at least one, in which all find out whether they have made the same call.
  int64_t count() const { return count_; }

  // Piece `index`, its call on memory at `slot`. The call's timeout, and what it is part of, are the caller's to set.
  void Make(int64_t index, std::byte* slot, Piece& piece) const;

 private:
  void MakeEven(int64_t first, int64_t length, std::byte* slot, Piece& piece) const;
  void MakeSegments(int64_t first, std::byte* slot, Piece& piece) const;
  void MakeAllToAll(int64_t first, std::byte* slot, Piece& piece) const;
  int64_t Cut(std::span<const int64_t> counts, int64_t first, int64_t slot_at, RankCounts& lengths,
              absl::InlinedVector<Span, 8>& spans) const;

  const Call& call_;
  const int rank_;
  const int64_t element_;
  const int64_t slot_bytes_;
  int64_t total_ = 0;   // elements: of the tensor, or the longest segment
  int64_t length_ = 1;  // of a piece, likewise
  int64_t count_ = 1;
};

}  // namespace gyre::internal::staged
