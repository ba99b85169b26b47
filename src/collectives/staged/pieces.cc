#include "collectives/staged/pieces.h"

#include <algorithm>

namespace gyre::internal::staged {

namespace {

bool Sends(const Call& call) {
  return call.kind == CallKind::kMessage && call.send;
}

DType TypeOf(const Call& call) {
  return call.kind == CallKind::kMessage && !call.send ? call.out.dtype : call.in.dtype;
}

}  // namespace

int64_t Pieces::SlotBytes(const Call& call, int64_t usual) {
  return call.kind == CallKind::kAllReduce && call.op == ReduceOp::kAdasum ? std::max(usual, call.in.bytes()) : usual;
}

Pieces::Pieces(const Call& call, int rank, int size, int64_t slot_bytes, int64_t longest)
    : call_(call), rank_(rank), element_(DTypeSize(TypeOf(call))), slot_bytes_(slot_bytes) {
  const int64_t most = slot_bytes / element_;
  switch (call.kind) {
    case CallKind::kReduceScatter:
    case CallKind::kAllGather:
      total_ = *std::ranges::max_element(call.counts);
      length_ = most / size;
      break;
    case CallKind::kAllToAll:
      total_ = call.even ? call.counts[0] : longest;
      length_ = most / 2 / size;
      break;
    default: total_ = call.kind == CallKind::kMessage && !call.send ? call.out.count : call.in.count; length_ = most;
  }
  length_ = std::max<int64_t>(length_, 1);
  count_ = std::max<int64_t>(1, (total_ + length_ - 1) / length_);
}

void Pieces::Make(int64_t index, std::byte* slot, Piece& piece) const {
  piece.call = call_;
  piece.call.counts = piece.call.receive_counts = {};
  piece.counts.clear();
  piece.receive_counts.clear();
  piece.out.clear();
  piece.back.clear();
  const int64_t first = index * length_;
  switch (call_.kind) {
    case CallKind::kReduceScatter:
    case CallKind::kAllGather: return MakeSegments(first, slot, piece);
    case CallKind::kAllToAll: return MakeAllToAll(first, slot, piece);
    default: return MakeEven(first, std::min(length_, total_ - first), slot, piece);
  }
}

// What all ranks that take part have as much of.
void Pieces::MakeEven(int64_t first, int64_t length, std::byte* slot, Piece& piece) const {
  const TensorView view(slot, length, TypeOf(call_));
  const Span span{.in_slot = 0, .in_tensor = first * element_, .bytes = length * element_};
  const bool message = call_.kind == CallKind::kMessage, root = call_.root == rank_;
  const bool reads = message ? Sends(call_) : call_.kind != CallKind::kBroadcast || root;
  const bool writes = message                              ? !Sends(call_)
                      : call_.kind == CallKind::kBroadcast ? !root
                                                           : call_.kind == CallKind::kAllReduce || root;
  piece.call.in = message && !reads ? ConstTensorView() : view;
  piece.call.out = (message || call_.kind == CallKind::kReduce) && !writes ? TensorView() : view;
  if (reads && length > 0) piece.out.push_back(span);
  if (writes && length > 0) piece.back.push_back(span);
}

// Of each rank's segment what there is from element `first` on; one behind the other in the slot, from `slot_at` on.
// Returns how many elements.
int64_t Pieces::Cut(std::span<const int64_t> counts, int64_t first, int64_t slot_at, RankCounts& lengths,
                    absl::InlinedVector<Span, 8>& spans) const {
  int64_t begin = 0, cut = 0;
  for (const int64_t count : counts) {
    const int64_t length = std::clamp<int64_t>(count - first, 0, length_);
    lengths.push_back(length);
    if (length > 0) {
      spans.push_back(
          {.in_slot = slot_at + cut * element_, .in_tensor = (begin + first) * element_, .bytes = length * element_});
    }
    cut += length;
    begin += count;
  }
  return cut;
}

// In place in the slot: this rank's segment is the shorter tensor.
void Pieces::MakeSegments(int64_t first, std::byte* slot, Piece& piece) const {
  const bool gathers = call_.kind == CallKind::kAllGather;
  const DType dtype = call_.in.dtype;
  const int64_t cut = Cut(call_.counts, first, 0, piece.counts, gathers ? piece.back : piece.out);
  const int64_t before = Displacements(piece.counts)[static_cast<size_t>(rank_)];
  const int64_t own = piece.counts[static_cast<size_t>(rank_)];
  const TensorView all(slot, cut, dtype), mine(slot + before * element_, own, dtype);
  piece.call.in = gathers ? mine : all;
  piece.call.out = gathers ? all : mine;
  piece.call.counts = piece.counts;
  const Span span{.in_slot = before * element_, .in_tensor = first * element_, .bytes = own * element_};
  if (own > 0) (gathers ? piece.out : piece.back).push_back(span);
}

// Half of the slot is for what is sent, half for what comes.
void Pieces::MakeAllToAll(int64_t first, std::byte* slot, Piece& piece) const {
  const int64_t half = slot_bytes_ / 2 / 64 * 64;
  const DType dtype = call_.in.dtype;
  const int64_t sent = Cut(call_.counts, first, 0, piece.counts, piece.out);
  const int64_t received = Cut(call_.receive_counts, first, half, piece.receive_counts, piece.back);
  piece.call.in = ConstTensorView(slot, sent, dtype);
  piece.call.out = TensorView(slot + half, received, dtype);
  piece.call.counts = piece.counts;
  piece.call.receive_counts = piece.receive_counts;
}

}  // namespace gyre::internal::staged
