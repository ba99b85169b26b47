#include "collectives/gpu_hierarchical/chunks.h"

#include <algorithm>

#include "collectives/hierarchical/layout.h"
#include "collectives/shm/slices.h"

namespace gyre::internal::gpu_hierarchical {

namespace {

// Shares begin on multiples of so many bytes.
constexpr int64_t kGrainBytes = 128;

// Chunks are no shorter than this part of what slots hold, unless the whole is.
constexpr int64_t kLeastPart = 8;

constexpr int64_t kAreaAlignment = 256;
constexpr int kAreas = 2;

constexpr int64_t RoundUp(int64_t count, int64_t grain) {
  return CeilDivide(count, grain) * grain;
}

bool HasSegments(const Call& call) {
  return call.kind == CallKind::kReduceScatter || call.kind == CallKind::kAllGather;
}

void* At(void* data, int64_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}
const void* At(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

}  // namespace

bool Chunks::Cuts(const Call& call, const Team& team) {
  if (HasSegments(call)) return team.rails() == team.most_local();
  return call.kind == CallKind::kBroadcast || (call.kind == CallKind::kAllReduce && call.op != ReduceOp::kAdasum);
}

Chunks::Chunks(const Call& call, const Team& team, const Limits& limits)
    : call_(call),
      team_(team),
      element_(DTypeSize(call.in.dtype)),
      scales_(HostScalesOf(call, team.size())),
      begins_(Displacements(call.counts)),
      grain_(kGrainBytes / element_) {
  if (HasSegments(call)) {
    CutSegments(limits);
  } else {
    CutWhole(limits);
  }
}

// As many chunks as there are slots at least, so that something overlaps; but none so short that its start counts for
// more than its bytes.
void Chunks::CutWhole(const Limits& limits) {
  const int64_t most = limits.slot_bytes / element_ / grain_ * grain_;
  const int64_t least = std::max(grain_, most / kLeastPart / grain_ * grain_);
  const int64_t share = CeilDivide(call_.in.count, int64_t{team_.rails()} * limits.slots);
  length_ = team_.rails() * std::clamp(RoundUp(share, grain_), least, most);
  count_ = CeilDivide(call_.in.count, length_);
  depth_ = limits.slots;
}

void Chunks::CutSegments(const Limits& limits) {
  const int64_t longest = *std::ranges::max_element(call_.counts);
  depth_ = std::min(kAreas, limits.slots);
  const int64_t of_area = limits.areas_bytes / depth_ / team_.rails();  // a rail's
  const int64_t most = std::max<int64_t>(1, std::min(limits.slot_bytes, of_area) / team_.hosts() / element_);
  const int64_t least = std::max<int64_t>(1, most / kLeastPart);
  length_ = std::clamp(CeilDivide(longest, int64_t{limits.slots}), least, most);
  if (length_ > grain_) length_ = length_ / grain_ * grain_;
  count_ = CeilDivide(longest, length_);
  area_bytes_ = RoundUp(team_.size() * length_ * element_, kAreaAlignment);
}

void Chunks::Make(int64_t index, std::byte* slot, std::byte* area, Chunk& chunk) const {
  const Chunk nothing;
  chunk = nothing;  // a move of it GCC 12 takes for a use of what is uninitialised
  switch (call_.kind) {
    case CallKind::kReduceScatter: return MakeReduceScatter(index, slot, area, chunk);
    case CallKind::kAllGather: return MakeAllGather(index, slot, area, chunk);
    case CallKind::kBroadcast: return MakeBroadcast(index, slot, chunk);
    default: return MakeAllReduce(index, slot, chunk);
  }
}

// --- The parts of chunks ---

// `own`: where this rank's share comes to be.
Call Chunks::Reducing(const void* in, int64_t count, void* own, const Chunk& chunk) const {
  return {.kind = CallKind::kReduceScatter,
          .in = {in, count, call_.in.dtype},
          .out = {own, OwnCount(chunk), call_.in.dtype},
          .op = scales_.plain.op,
          .prescale = call_.prescale,
          .postscale = scales_.early,
          .counts = chunk.counts};
}

Call Chunks::Gathering(void* all, int64_t count, void* own, const Chunk& chunk) const {
  return {.kind = CallKind::kAllGather,
          .in = {own, OwnCount(chunk), call_.in.dtype},
          .out = {all, count, call_.in.dtype},
          .counts = chunk.counts};
}

Call Chunks::Between(CallKind kind, std::byte* slot, const Chunk& chunk) const {
  const TensorView share(slot, OwnCount(chunk), call_.in.dtype);
  return {
      .kind = kind, .in = share, .out = share, .op = scales_.plain.op, .root = call_.root, .counts = chunk.host_counts};
}

// --- Of one tensor ---

// Where this rank's share of so many elements begins.
int64_t Chunks::DealOut(int64_t count, Chunk& chunk) const {
  const RailSlices slices(count, team_.local_size(), team_.rails(), grain_);
  chunk.counts = slices.counts;
  return slices.begins[static_cast<size_t>(team_.local_rank())];
}

void Chunks::MakeAllReduce(int64_t index, std::byte* slot, Chunk& chunk) const {
  const Range range = PieceOf(call_.in.count, length_, index);
  const int64_t begin = DealOut(range.count, chunk), bytes = OwnCount(chunk) * element_;
  const void* const in = At(call_.in.data, range.begin * element_);
  void* const all = At(call_.out.data, range.begin * element_);
  void* const own = At(all, begin * element_);
  const bool alone = team_.local_size() == 1;
  const bool as_it_is = alone && call_.prescale == 1.0 && scales_.early == 1.0;
  if (!as_it_is) chunk.inward = Reducing(in, range.count, own, chunk);
  chunk.out = {slot, as_it_is ? in : own, bytes};
  chunk.between = Between(CallKind::kAllReduce, slot, chunk);
  chunk.back = {own, slot, bytes};
  if (scales_.finishes()) chunk.rest = {own, OwnCount(chunk), call_.in.dtype};
  if (!alone) chunk.outward = Gathering(all, range.count, own, chunk);
}

void Chunks::MakeBroadcast(int64_t index, std::byte* slot, Chunk& chunk) const {
  const Range range = PieceOf(call_.out.count, length_, index);
  const int64_t begin = DealOut(range.count, chunk), bytes = OwnCount(chunk) * element_;
  const TensorView all(At(call_.out.data, range.begin * element_), range.count, call_.in.dtype);
  void* const own = At(all.data, begin * element_);
  const Place& root = team_.place(call_.root);
  const bool alone = team_.local_size() == 1;
  chunk.between = Between(CallKind::kBroadcast, slot, chunk);
  if (root.host == team_.host()) {
    if (!alone) chunk.inward = {.kind = CallKind::kBroadcast, .in = all, .out = all, .root = root.local};
    chunk.out = {slot, own, bytes};
  } else {
    chunk.back = {own, slot, bytes};
    if (!alone) chunk.outward = Gathering(all.data, range.count, own, chunk);
  }
}

// --- Of segments ---

// Fills in the counts. visit(in_tensor, in_area, count), in elements, of every rank's piece.
template <typename Visit>
Chunks::Packing Chunks::PackingOf(int64_t index, Chunk& chunk, const Visit& visit) const {
  Packing packing;
  for (int rail = 0; rail < team_.rails(); ++rail) {
    const bool own = rail == team_.local_rank();
    const int64_t before = packing.total;
    if (own) packing.own_rail = before;
    for (int host = 0; host < team_.hosts(); ++host) {
      const auto rank = static_cast<size_t>(team_.Rail(rail)[static_cast<size_t>(host)]);
      const Range piece = PieceOf(call_.counts[rank], length_, index);
      if (own && host == team_.host()) packing.own_host = packing.total - before;
      if (own) chunk.host_counts.push_back(piece.count);
      if (piece.count > 0) visit(begins_[rank] + piece.begin, packing.total, piece.count);
      packing.total += piece.count;
    }
    chunk.counts.push_back(packing.total - before);
  }
  return packing;
}

void Chunks::MakeReduceScatter(int64_t index, std::byte* slot, std::byte* area, Chunk& chunk) const {
  const Packing packing = PackingOf(index, chunk, [&](int64_t in_tensor, int64_t in_area, int64_t count) {
    chunk.pack.push_back({At(area, in_area * element_), At(call_.in.data, in_tensor * element_), count * element_});
  });
  void* const own = At(area, packing.own_rail * element_);
  const Range mine = PieceOf(call_.out.count, length_, index);
  void* const to = At(call_.out.data, mine.begin * element_);
  chunk.inward = Reducing(area, packing.total, own, chunk);
  chunk.out = {slot, own, OwnCount(chunk) * element_};
  chunk.between = Between(CallKind::kReduceScatter, slot, chunk);
  chunk.back = {to, slot + packing.own_host * element_, mine.count * element_};
  if (scales_.finishes()) chunk.rest = {to, mine.count, call_.in.dtype};
}

void Chunks::MakeAllGather(int64_t index, std::byte* slot, std::byte* area, Chunk& chunk) const {
  const Packing packing = PackingOf(index, chunk, [&](int64_t in_tensor, int64_t in_area, int64_t count) {
    chunk.unpack.push_back({At(call_.out.data, in_tensor * element_), At(area, in_area * element_), count * element_});
  });
  void* const own = At(area, packing.own_rail * element_);
  const Range mine = PieceOf(call_.in.count, length_, index);
  chunk.out = {slot + packing.own_host * element_, At(call_.in.data, mine.begin * element_), mine.count * element_};
  chunk.between = Between(CallKind::kAllGather, slot, chunk);
  chunk.back = {own, slot, OwnCount(chunk) * element_};
  chunk.outward = Gathering(area, packing.total, own, chunk);
}

}  // namespace gyre::internal::gpu_hierarchical
