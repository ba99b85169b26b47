#include "collectives/shm/broadcast.h"

#include <algorithm>
#include <cstring>

#include "collectives/shm/slices.h"

namespace gyre::internal {

namespace {

// The parts that root and others copy begin on pages of their own.
constexpr int64_t kPage = 4096;

}  // namespace

Broadcast::Broadcast(Group& group, Channel& channel, const Signature& signature, std::chrono::milliseconds timeout,
                     int root, ConstTensorView from, TensorView to)
    : ArenaOperation(group, channel, signature, timeout, std::max(from.bytes(), to.bytes()) <= SmallBytes(group)),
      root_(root),
      from_(static_cast<const std::byte*>(from.data)),
      to_(static_cast<std::byte*>(to.data)),
      bytes_(std::max(from.bytes(), to.bytes())),
      chunks_(bytes_ <= channel.capacity ? 1 : CeilDivide(bytes_, channel.capacity)) {}

void Broadcast::PublishChunk(int64_t chunk) {
  if (rank() != root_) return;
  const Range piece = PieceOf(bytes_, channel().capacity, chunk);
  if (piece.count == 0) return;
  std::memcpy(meeting().mine().payload(piece.count), from_ + piece.begin, static_cast<size_t>(piece.count));
}

Broadcast::Next Broadcast::ConsumeChunk(int64_t chunk) {
  if (rank() != root_) {
    const Range piece = PieceOf(bytes_, channel().capacity, chunk);
    if (piece.count > 0) {
      std::memcpy(to_ + piece.begin, meeting().slot(root_).payload(piece.count), static_cast<size_t>(piece.count));
    }
  }
  return chunk + 1 < chunks_ ? Next::kRound : Next::kEnd;
}

shm::Slot::Offsets Broadcast::Share() {
  if (rank() == root_) return {OffsetOf(from_, bytes_), shm::kNowhere};
  const int64_t to = OffsetOf(to_, bytes_);
  return {to, to};
}

// The root decides: the others need nothing of each other, and publish no chunks.
Broadcast::Sharing Broadcast::LookAround() {
  return meeting().slot(root_).offsets.in != shm::kNowhere ? Sharing::kAll : Sharing::kNone;
}

// Whether all the others' buffers lie in arenas. All ranks see the same.
bool Broadcast::RootHelps() {
  for (int m = 0; m < size(); ++m) {
    if (m != root_ && meeting().slot(m).offsets.out == shm::kNowhere) return false;
  }
  return true;
}

bool Broadcast::AddRootsShare() {
  const Range share = SliceOf(bytes_, size(), root_, kPage);
  for (int m = 0; m < size(); ++m) {
    if (m == root_) continue;
    std::byte* const to = Reach(m, meeting().slot(m).offsets.out, bytes_);
    if (to == nullptr) return false;
    copies_.Add(to + share.begin, from_ + share.begin, share.count);
  }
  return true;
}

bool Broadcast::BeginDirect() {
  const bool root_helps = RootHelps();
  if (rank() == root_) return !root_helps || AddRootsShare();
  const std::byte* const from = Reach(root_, meeting().slot(root_).offsets.in, bytes_);
  if (from == nullptr) return false;
  const Range roots = root_helps ? SliceOf(bytes_, size(), root_, kPage) : Range{bytes_, 0};
  copies_.Add(to_, from, roots.begin);
  const int64_t after = roots.begin + roots.count;
  copies_.Add(to_ + after, from + after, bytes_ - after);
  return true;
}

// The root may write into the others' buffers at any later time.
void Broadcast::OnGivenUp() {
  if (rank() != root_ && MayBeDirect()) group().node().arena()->Retire(to_);
}

}  // namespace gyre::internal
