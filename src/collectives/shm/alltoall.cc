#include "collectives/shm/alltoall.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/shm/slices.h"

namespace gyre::internal {

AllToAll::AllToAll(Group& group, const Call& call, const Signature& signature)
    : Operation(group, group.collective(), signature, *call.timeout),
      in_(call.in),
      out_(call.out),
      element_(DTypeSize(in_.dtype)),
      send_counts_(call.counts.begin(), call.counts.end()),
      receive_counts_(call.receive_counts.begin(), call.receive_counts.end()),
      send_begins_(Displacements(call.counts)),
      receive_begins_(Displacements(call.receive_counts)),
      piece_(channel().capacity / element_ / group.size()) {}

void AllToAll::Publish(int64_t round) {
  if (round == 0) {
    std::byte* const plan = meeting().mine().payload(PlanBytes());
    const size_t half = send_counts_.size() * sizeof(int64_t);
    std::memcpy(plan, send_counts_.data(), half);
    std::memcpy(plan + half, receive_counts_.data(), half);
    return;
  }
  std::byte* const payload = meeting().mine().payload(channel().capacity);
  for (size_t r = 0; r < send_counts_.size(); ++r) {
    const Range piece = PieceOf(send_counts_[r], piece_, round - 1);
    if (piece.count == 0 || static_cast<int>(r) == rank()) continue;
    std::memcpy(payload + static_cast<int64_t>(r) * piece_ * element_,
                static_cast<const char*>(in_.data) + (send_begins_[r] + piece.begin) * element_,
                static_cast<size_t>(piece.count * element_));
  }
}

AllToAll::Next AllToAll::ConsumeCounts() {
  const auto count = [&](int rank, int64_t entry) {
    int64_t value;
    std::memcpy(&value, meeting().slot(rank).payload(PlanBytes()) + entry * static_cast<int64_t>(sizeof(value)),
                sizeof(value));
    return value;
  };
  int64_t longest = 0;
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      const int64_t sent = count(from, to), expected = count(to, size() + from);
      if (sent != expected) {
        return Refuse(absl::InvalidArgumentError(absl::StrCat("alltoall: ", group().RankName(from), " sends ", sent,
                                                              " elements to ", group().RankName(to), ", which expects ",
                                                              expected)));
      }
      longest = std::max(longest, sent);
    }
  }
  rounds_ = CeilDivide(longest, piece_);
  return rounds_ > 0 ? Next::kRound : Next::kEnd;
}

AllToAll::Next AllToAll::Consume(int64_t round) {
  if (round == 0) return ConsumeCounts();
  for (int m = 0; m < size(); ++m) {
    const auto index = static_cast<size_t>(m);
    const Range piece = PieceOf(receive_counts_[index], piece_, round - 1);
    if (piece.count == 0) continue;
    // Its own from the input; where that is the output, both are at the same place.
    const void* const from =
        m == rank()
            ? static_cast<const char*>(in_.data) + (send_begins_[index] + piece.begin) * element_
            : static_cast<const void*>(meeting().slot(m).payload(channel().capacity) + rank() * piece_ * element_);
    std::memmove(static_cast<char*>(out_.data) + (receive_begins_[index] + piece.begin) * element_, from,
                 static_cast<size_t>(piece.count * element_));
  }
  return round < rounds_ ? Next::kRound : Next::kEnd;
}

}  // namespace gyre::internal
