#include "collectives/shm/allgather.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/shm/slices.h"

namespace gyre::internal {

AllGather::AllGather(Group& group, const Call& call, const Signature& signature)
    : ArenaOperation(group, group.collective(), signature, *call.timeout,
                     LongestOf(call.counts) * DTypeSize(call.in.dtype) <= SmallBytes(group)),
      in_(call.in),
      out_(call.out),
      element_(DTypeSize(in_.dtype)),
      counts_(call.counts.begin(), call.counts.end()),
      begins_(Displacements(call.counts)),
      chunk_elements_(channel().capacity >> std::countr_zero(static_cast<uint64_t>(element_))),
      chunks_(LongestOf(counts_) <= chunk_elements_ ? 1 : CeilDivide(LongestOf(counts_), chunk_elements_)),
      chunk_bytes_(std::min(LongestOf(counts_), chunk_elements_) * element_) {}

std::byte* AllGather::Segment(int member) const {
  return static_cast<std::byte*>(out_.data) + begins_[static_cast<size_t>(member)] * element_;
}

void AllGather::PublishChunk(int64_t chunk) {
  const Range piece = PieceOf(in_.count, chunk_elements_, chunk);
  const int64_t bytes = piece.count * element_;
  if (bytes == 0) return;
  std::memcpy(meeting().mine().payload(ChunkBytes()), static_cast<const char*>(in_.data) + piece.begin * element_,
              static_cast<size_t>(bytes));
}

AllGather::Next AllGather::ConsumeChunk(int64_t chunk) {
  for (int m = 0; m < size(); ++m) {
    const Range piece = PieceOf(counts_[static_cast<size_t>(m)], chunk_elements_, chunk);
    const int64_t bytes = piece.count * element_;
    if (bytes == 0) continue;
    // Its own not from the slot, whose lines the others have taken by now (Meeting::Gathered).
    const void* const from = m == rank() ? static_cast<const char*>(in_.data) + piece.begin * element_
                                         : static_cast<const void*>(meeting().slot(m).payload(ChunkBytes()));
    void* const to = Segment(m) + piece.begin * element_;
    if (to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  return chunk + 1 < chunks_ ? Next::kRound : Next::kEnd;
}

shm::Slot::Offsets AllGather::Share() {
  return {OffsetOf(in_.data, in_.bytes()), shm::kNowhere};
}

bool AllGather::BeginDirect() {
  copies_.Add(Segment(rank()), in_.data, in_.bytes());
  for (int step = 1; step < size(); ++step) {  // each begins with another, so that not all read from one
    const int m = (rank() + step) % size();
    const std::byte* const from = Reach(m, meeting().slot(m).offsets.in, SegmentBytes(m));
    if (from == nullptr) return false;
    copies_.Add(Segment(m), from, SegmentBytes(m));
  }
  return true;
}

}  // namespace gyre::internal
