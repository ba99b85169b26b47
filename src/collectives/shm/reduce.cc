#include "collectives/shm/reduce.h"

#include <algorithm>
#include <cstring>

#include "collectives/shm/slices.h"

namespace gyre::internal {

ReduceToRoot::ReduceToRoot(Group& group, const Call& call, const Signature& signature)
    : Operation(group, group.collective(), signature, *call.timeout),
      in_(call.in),
      out_(call.out),
      root_(call.root),
      reduction_(ReductionOf(call, group.size())),
      element_(DTypeSize(in_.dtype)),
      chunk_elements_(channel().capacity / element_),
      rounds_(std::max<int64_t>(1, CeilDivide(in_.count, chunk_elements_))) {}

void ReduceToRoot::Publish(int64_t round) {
  if (rank() == root_) return;
  const Range piece = PieceOf(in_.count, chunk_elements_, round);
  const int64_t bytes = piece.count * element_;
  if (bytes == 0) return;
  std::memcpy(meeting().mine().payload(bytes), static_cast<const char*>(in_.data) + piece.begin * element_,
              static_cast<size_t>(bytes));
}

ReduceToRoot::Next ReduceToRoot::Consume(int64_t round) {
  if (rank() == root_) {
    const Range piece = PieceOf(in_.count, chunk_elements_, round);
    for (int m = 0; m < size(); ++m) {
      channel().sources[static_cast<size_t>(m)] = meeting().slot(m).payload(piece.count * element_);
    }
    channel().sources[static_cast<size_t>(rank())] = static_cast<const char*>(in_.data) + piece.begin * element_;
    void* const to = static_cast<char*>(out_.data) + piece.begin * element_;
    device::Reduce(reduction_, channel().sources, {&to, 1}, piece.count);
  }
  return round + 1 < rounds_ ? Next::kRound : Next::kEnd;
}

}  // namespace gyre::internal
