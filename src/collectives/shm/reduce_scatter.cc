#include "collectives/shm/reduce_scatter.h"

#include <algorithm>
#include <cstring>

#include "collectives/shm/slices.h"

namespace gyre::internal {

ReduceScatter::ReduceScatter(Group& group, const Call& call, const Signature& signature)
    : Operation(group, group.collective(), signature, *call.timeout),
      in_(call.in),
      out_(call.out),
      reduction_(ReductionOf(call, group.size())),
      element_(DTypeSize(in_.dtype)),
      counts_(call.counts.begin(), call.counts.end()),
      begins_(Displacements(call.counts)),
      piece_(channel().capacity / element_ / group.size()),
      rounds_(std::max<int64_t>(1, CeilDivide(*std::ranges::max_element(counts_), piece_))) {}

void ReduceScatter::Publish(int64_t round) {
  std::byte* const payload = meeting().mine().payload(channel().capacity);
  for (size_t r = 0; r < counts_.size(); ++r) {
    const Range piece = PieceOf(counts_[r], piece_, round);
    if (piece.count == 0 || static_cast<int>(r) == rank()) continue;
    std::memcpy(payload + static_cast<int64_t>(r) * piece_ * element_,
                static_cast<const char*>(in_.data) + (begins_[r] + piece.begin) * element_,
                static_cast<size_t>(piece.count * element_));
  }
}

ReduceScatter::Next ReduceScatter::Consume(int64_t round) {
  const Range piece = PieceOf(counts_[static_cast<size_t>(rank())], piece_, round);
  for (int m = 0; m < size(); ++m) {
    channel().sources[static_cast<size_t>(m)] =
        meeting().slot(m).payload(channel().capacity) + rank() * piece_ * element_;
  }
  channel().sources[static_cast<size_t>(rank())] =
      static_cast<const char*>(in_.data) + (begins_[static_cast<size_t>(rank())] + piece.begin) * element_;
  void* const to = static_cast<char*>(out_.data) + piece.begin * element_;
  device::Reduce(reduction_, channel().sources, {&to, 1}, piece.count);
  return round + 1 < rounds_ ? Next::kRound : Next::kEnd;
}

}  // namespace gyre::internal
