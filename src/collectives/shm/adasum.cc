#include "collectives/shm/adasum.h"

#include <algorithm>
#include <cstring>

#include "collectives/shm/slices.h"

namespace gyre::internal {

AdasumAllReduce::AdasumAllReduce(Group& group, const Call& call, const Signature& signature)
    : Operation(group, group.collective(), signature, *call.timeout),
      in_(call.in),
      out_(call.out),
      prescale_(call.prescale),
      postscale_(call.postscale),
      element_(DTypeSize(in_.dtype)),
      chunk_elements_(channel().capacity / element_),
      rounds_(std::max<int64_t>(1, CeilDivide(in_.count, chunk_elements_))),
      work_(in_.dtype, group.size(), in_.count) {}

void AdasumAllReduce::Publish(int64_t round) {
  const Range piece = PieceOf(in_.count, chunk_elements_, round);
  const int64_t bytes = piece.count * element_;
  if (bytes == 0) return;
  std::memcpy(meeting().mine().payload(bytes), static_cast<const char*>(in_.data) + piece.begin * element_,
              static_cast<size_t>(bytes));
}

AdasumAllReduce::Next AdasumAllReduce::Consume(int64_t round) {
  if (round == rounds_) return Next::kEnd;  // all have combined: nobody is taken for lost who leaves now
  if (taken_ == round) {
    const Range piece = PieceOf(in_.count, chunk_elements_, round);
    for (int m = 0; m < size() && piece.count > 0; ++m) {
      // Its own not from the slot, whose lines the others have taken by now (Meeting::Gathered).
      const void* const from = m == rank()
                                   ? static_cast<const char*>(in_.data) + piece.begin * element_
                                   : static_cast<const void*>(meeting().slot(m).payload(piece.count * element_));
      work_.Take(m, piece.begin, from, piece.count, prescale_);
    }
    ++taken_;
  }
  if (taken_ < rounds_) return Next::kRound;
  if (work_.Combine()) return Next::kAgain;  // a pass over two vectors between two looks at the deadline
  work_.Store(out_.data, postscale_);
  return Next::kRound;
}

}  // namespace gyre::internal
