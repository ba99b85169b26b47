#include "collectives/shm/broadcast.h"

#include <algorithm>
#include <cstring>

#include "collectives/shm/slices.h"

namespace gyre::internal {

Broadcast::Broadcast(Group& group, Channel& channel, const Signature& signature, std::chrono::milliseconds timeout,
                     int root, ConstTensorView from, TensorView to)
    : Operation(group, channel, signature, timeout),
      root_(root),
      from_(static_cast<const char*>(from.data)),
      to_(static_cast<char*>(to.data)),
      bytes_(std::max(from.bytes(), to.bytes())),
      rounds_(std::max<int64_t>(1, CeilDivide(bytes_, channel.capacity))) {}

void Broadcast::Publish(int64_t round) {
  if (rank() != root_) return;
  const Range piece = PieceOf(bytes_, channel().capacity, round);
  if (piece.count == 0) return;
  std::memcpy(meeting().mine().payload(piece.count), from_ + piece.begin, static_cast<size_t>(piece.count));
}

Broadcast::Next Broadcast::Consume(int64_t round) {
  if (rank() != root_) {
    const Range piece = PieceOf(bytes_, channel().capacity, round);
    if (piece.count > 0) {
      std::memcpy(to_ + piece.begin, meeting().slot(root_).payload(piece.count), static_cast<size_t>(piece.count));
    }
  }
  return round + 1 < rounds_ ? Next::kRound : Next::kEnd;
}

}  // namespace gyre::internal
