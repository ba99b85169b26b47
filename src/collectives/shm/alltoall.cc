#include "collectives/shm/alltoall.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/shm/slices.h"

namespace gyre::internal {

namespace {

constexpr int64_t kLittle = 256;  // bytes for one rank

// Rounded up to whole cache lines.
constexpr int64_t Lines(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

AllToAll::AllToAll(Group& group, const Call& call, const Signature& signature)
    : ArenaOperation(group, group.collective(), signature, *call.timeout, false),
      in_(call.in),
      out_(call.out),
      element_(DTypeSize(in_.dtype)),
      send_counts_(call.counts.begin(), call.counts.end()),
      receive_counts_(call.receive_counts.begin(), call.receive_counts.end()),
      send_begins_(Displacements(call.counts)),
      receive_begins_(Displacements(call.receive_counts)),
      pieces_(static_cast<size_t>(group.size())) {
  pieces_[static_cast<size_t>(rank())] = PieceLength(*std::ranges::max_element(send_counts_));
}

// Of a rank that sends at most `longest` elements to another: what there is lies together.
int64_t AllToAll::PieceLength(int64_t longest) const {
  return std::min(longest, (channel().capacity - Lines(PlanBytes())) / (element_ * size()));
}

// Little data shares the plan's line, much begins on one of its own.
int64_t AllToAll::PieceAt(int64_t piece, int receiver) const {
  const int64_t first = piece * element_ < kLittle ? PlanBytes() : Lines(PlanBytes());
  return first + receiver * piece * element_;
}

// In place, what one rank receives would overwrite what others have yet to read.
shm::Slot::Offsets AllToAll::Share() {
  std::byte* const plan = Payload(rank());
  const size_t half = send_counts_.size() * sizeof(int64_t);
  std::memcpy(plan, send_counts_.data(), half);
  std::memcpy(plan + half, receive_counts_.data(), half);
  const bool direct = in_.bytes() > SmallBytes(group()) && in_.data != out_.data;
  return {direct ? OffsetOf(in_.data, in_.bytes()) : shm::kNowhere, shm::kNowhere};
}

void AllToAll::PublishChunk(int64_t chunk) {
  std::byte* const payload = Payload(rank());
  const int64_t length = pieces_[static_cast<size_t>(rank())];
  for (int r = 0; r < size(); ++r) {
    const auto index = static_cast<size_t>(r);
    const Range piece = PieceOf(send_counts_[index], length, chunk);
    if (piece.count == 0 || r == rank()) continue;
    std::memcpy(payload + PieceAt(length, r),
                static_cast<const char*>(in_.data) + (send_begins_[index] + piece.begin) * element_,
                static_cast<size_t>(piece.count * element_));
  }
}

int64_t AllToAll::Planned(int member, int64_t entry) {
  if (member == rank()) {  // not from the slot, whose lines the others have taken by now (Meeting::Gathered)
    return entry < size() ? send_counts_[static_cast<size_t>(entry)]
                          : receive_counts_[static_cast<size_t>(entry - size())];
  }
  int64_t value;
  std::memcpy(&value, Payload(member) + entry * static_cast<int64_t>(sizeof(value)), sizeof(value));
  return value;
}

// All ranks see the same plans and so come to the same answer.
bool AllToAll::Agree() {
  for (int from = 0; from < size(); ++from) {
    int64_t longest = 0;
    for (int to = 0; to < size(); ++to) {
      const int64_t sent = Planned(from, to), expected = Planned(to, size() + from);
      if (sent != expected) {
        Refuse(absl::InvalidArgumentError(absl::StrCat("alltoall: ", group().RankName(from), " sends ", sent,
                                                       " elements to ", group().RankName(to), ", which expects ",
                                                       expected)));
        return false;
      }
      longest = std::max(longest, sent);
    }
    int64_t& piece = pieces_[static_cast<size_t>(from)];
    piece = PieceLength(longest);
    if (longest > piece) chunks_ = std::max(chunks_, CeilDivide(longest, piece));
  }
  return true;
}

AllToAll::Next AllToAll::ConsumeChunk(int64_t chunk) {
  for (int m = 0; m < size(); ++m) {
    const auto index = static_cast<size_t>(m);
    const Range piece = PieceOf(receive_counts_[index], pieces_[index], chunk);
    if (piece.count == 0) continue;
    // Its own from the input; where that is the output, both are at the same place.
    const void* const from = m == rank()
                                 ? static_cast<const char*>(in_.data) + (send_begins_[index] + piece.begin) * element_
                                 : static_cast<const void*>(Payload(m) + PieceAt(pieces_[index], rank()));
    std::memmove(static_cast<char*>(out_.data) + (receive_begins_[index] + piece.begin) * element_, from,
                 static_cast<size_t>(piece.count * element_));
  }
  return chunk + 1 < chunks_ ? Next::kRound : Next::kEnd;
}

bool AllToAll::BeginDirect() {
  for (int step = 0; step < size(); ++step) {  // each begins with another, so that not all read from one
    const int m = (rank() + step) % size();
    const auto index = static_cast<size_t>(m);
    const int64_t bytes = receive_counts_[index] * element_;
    uint64_t begin = 0;  // in the sender's input, from its plan
    for (int r = 0; r < rank(); ++r) begin += static_cast<uint64_t>(Planned(m, r));
    const int64_t offset = m == rank() ? 0 : meeting().slot(m).offsets.in;
    const auto at = static_cast<int64_t>(static_cast<uint64_t>(offset) + begin * static_cast<uint64_t>(element_));
    const void* const from =
        m == rank() ? static_cast<const std::byte*>(in_.data) + send_begins_[index] * element_ : Reach(m, at, bytes);
    if (from == nullptr && bytes > 0) return false;
    copies_.Add(static_cast<std::byte*>(out_.data) + receive_begins_[index] * element_, from, bytes);
  }
  return true;
}

}  // namespace gyre::internal
