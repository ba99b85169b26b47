#include "collectives/shm/allgather.h"

#include <algorithm>
#include <cstring>

#include "collectives/shm/slices.h"

namespace gyre::internal {

AllGather::AllGather(Group& group, const Call& call, const Signature& signature)
    : Operation(group, group.collective(), signature, *call.timeout),
      in_(call.in),
      out_(call.out),
      element_(DTypeSize(in_.dtype)),
      counts_(call.counts.begin(), call.counts.end()),
      begins_(Displacements(call.counts)),
      chunk_elements_(channel().capacity / element_),
      rounds_(std::max<int64_t>(1, CeilDivide(*std::ranges::max_element(counts_), chunk_elements_))) {}

void AllGather::Publish(int64_t round) {
  const Range piece = PieceOf(in_.count, chunk_elements_, round);
  const int64_t bytes = piece.count * element_;
  if (bytes == 0) return;
  std::memcpy(meeting().mine().payload(bytes), static_cast<const char*>(in_.data) + piece.begin * element_,
              static_cast<size_t>(bytes));
}

AllGather::Next AllGather::Consume(int64_t round) {
  for (int m = 0; m < size(); ++m) {
    const auto index = static_cast<size_t>(m);
    const Range piece = PieceOf(counts_[index], chunk_elements_, round);
    const int64_t bytes = piece.count * element_;
    if (bytes == 0) continue;
    // Its own not from the slot, whose lines the others have taken by now (Meeting::Gathered).
    const void* const from = m == rank() ? static_cast<const char*>(in_.data) + piece.begin * element_
                                         : static_cast<const void*>(meeting().slot(m).payload(bytes));
    std::memmove(static_cast<char*>(out_.data) + (begins_[index] + piece.begin) * element_, from,
                 static_cast<size_t>(bytes));
  }
  return round + 1 < rounds_ ? Next::kRound : Next::kEnd;
}

}  // namespace gyre::internal
