#include "collectives/shm/reduce_scatter.h"

#include <algorithm>
#include <cstring>

#include "collectives/shm/slices.h"

namespace gyre::internal {

ReduceScatter::ReduceScatter(Group& group, const Call& call, const Signature& signature)
    : ArenaOperation(group, group.collective(), signature, *call.timeout,
                     LongestOf(call.counts) * DTypeSize(call.in.dtype) <= SmallBytes(group)),
      in_(call.in),
      out_(call.out),
      reduction_(ReductionOf(call, group.size())),
      element_(DTypeSize(in_.dtype)),
      counts_(call.counts.begin(), call.counts.end()),
      begins_(Displacements(call.counts)),
      longest_(LongestOf(counts_)),
      piece_(std::min(longest_, channel().capacity / (element_ * group.size()))),
      chunks_(longest_ == piece_ ? 1 : CeilDivide(longest_, piece_)) {}

const char* ReduceScatter::Own() const {
  return static_cast<const char*>(in_.data) + begins_[static_cast<size_t>(rank())] * element_;
}

void ReduceScatter::PublishChunk(int64_t chunk) {
  std::byte* const payload = meeting().mine().payload(ChunkBytes());
  for (size_t r = 0; r < counts_.size(); ++r) {
    const Range piece = PieceOf(counts_[r], piece_, chunk);
    if (piece.count == 0 || static_cast<int>(r) == rank()) continue;
    std::memcpy(payload + static_cast<int64_t>(r) * piece_ * element_,
                static_cast<const char*>(in_.data) + (begins_[r] + piece.begin) * element_,
                static_cast<size_t>(piece.count * element_));
  }
}

ReduceScatter::Next ReduceScatter::ConsumeChunk(int64_t chunk) {
  const Range piece = PieceOf(counts_[static_cast<size_t>(rank())], piece_, chunk);
  for (int m = 0; m < size(); ++m) {
    channel().sources[static_cast<size_t>(m)] = meeting().slot(m).payload(ChunkBytes()) + rank() * piece_ * element_;
  }
  channel().sources[static_cast<size_t>(rank())] = Own() + piece.begin * element_;
  void* const to = static_cast<char*>(out_.data) + piece.begin * element_;
  device::Reduce(reduction_, channel().sources, {&to, 1}, piece.count);
  return chunk + 1 < chunks_ ? Next::kRound : Next::kEnd;
}

shm::Slot::Offsets ReduceScatter::Share() {
  return {OffsetOf(in_.data, in_.bytes()), shm::kNowhere};
}

bool ReduceScatter::BeginDirect() {
  const int64_t begin = begins_[static_cast<size_t>(rank())] * element_;
  for (int m = 0; m < size(); ++m) {
    const auto index = static_cast<size_t>(m);
    const std::byte* const whole =
        m == rank() ? static_cast<const std::byte*>(in_.data) : Reach(m, meeting().slot(m).offsets.in, in_.bytes());
    if (whole == nullptr) return false;
    channel().sources[index] = whole + begin;
  }
  return true;
}

bool ReduceScatter::WorkDirectly() {
  const int64_t piece = kPieceBytes / size() / element_;
  const int64_t count = std::min(std::max<int64_t>(1, piece), out_.count - done_);
  void* const to = static_cast<char*>(out_.data) + done_ * element_;
  device::Reduce(reduction_, channel().sources, {&to, 1}, count);
  done_ += count;
  for (const void*& source : channel().sources) source = static_cast<const char*>(source) + count * element_;
  return done_ == out_.count;
}

}  // namespace gyre::internal
