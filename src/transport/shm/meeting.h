// Meeting: where a group of ranks of one host exchange short headers and chunks of data, round after round.
//
// In every round each member writes its slot and posts it; once all have posted, each may read all slots. Slots are
// double-buffered by the parity of the round, so no second barrier is needed: a member can only post round n + 2, and
// so overwrite its slot of round n, after everybody posted round n + 1, which they do when done reading round n.
//
// A slot is one cache line of header, in which up to 32 bytes of data travel along, followed by the payload.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "transport/shm/control_block.h"
#include "transport/signature.h"

namespace gyre::shm {

inline constexpr int64_t kNowhere = -1;

struct alignas(64) Slot {
  struct Offsets {
    int64_t in;  // of this rank's input and output in its arena, or kNowhere
    int64_t out;
  };
  static constexpr int64_t kInlineBytes = 32;

  std::atomic<uint64_t> round;
  Signature signature;
  union {  // an operation knows by its size which of the two a round has
    Offsets offsets;
    std::byte inline_payload[kInlineBytes];
  };

  // Where a payload of `bytes` goes. REQUIRES: the slot was laid out with room for it.
  std::byte* payload(int64_t bytes) {
    return bytes <= kInlineBytes ? inline_payload : reinterpret_cast<std::byte*>(this + 1);
  }
};
static_assert(sizeof(Slot) == 64);

// Not thread-safe: one thread at a time, whoever holds the operation in course.
class Meeting {
 public:
  struct Member {
    std::byte* slots;  // two, one after the other, each slot_bytes long; zero before the first round
    int64_t slot_bytes;
    Doorbell* doorbell;
  };

  // Memory for the two slots of a member whose payloads have at most `capacity` bytes.
  static constexpr int64_t SlotBytes(int64_t capacity) { return (64 + capacity + 127) / 128 * 128; }

  Meeting(std::vector<Member> members, int self) : members_(std::move(members)), self_(self) {}

  int size() const { return static_cast<int>(members_.size()); }
  int self() const { return self_; }

  // This member's slot for the round to come. Write it, then Post.
  Slot& mine() { return SlotOf(self_); }
  void Post() {
    mine().round.store(round_, std::memory_order_seq_cst);  // ordered before the looks at `sleepers` (Doorbell)
    RingAll();
  }

  // After Post: whether all (see NarrowNext) have posted the round. Once true, slots of the round may be read until the
  // next Post. It never looks at this member's own slot: the others have taken its lines away by then, and getting one
  // back costs as much as getting one of theirs.
  bool Gathered() {
    if (!narrowed_.empty()) [[unlikely]]
      return SomeGathered();
    while (arrived_ < size()) {
      if (arrived_ != self_ && SlotOf(arrived_).round.load(std::memory_order_seq_cst) < round_) return false;
      ++arrived_;
    }
    return true;
  }

  // The same, with a few dozen looks in a row: the others are often just about to post.
  bool GathersSoon() {
    for (int look = 0; look < 32; ++look) {
      if (Gathered()) return true;
    }
    return false;
  }

  // After a Gathered that returned false, where nobody narrowed the round: a member that had not posted it.
  int awaited() const { return arrived_; }

  // After Post: whether this member has posted the round.
  bool HasPosted(int member) { return SlotOf(member).round.load(std::memory_order_seq_cst) >= round_; }

  // REQUIRES: Gathered()
  Slot& slot(int member) { return SlotOf(member); }

  // In the round after this one this member meets only these (itself may be among them), whoever else posts; the caller
  // sees to it that slots are not overwritten before they are read. They must outlive that round.
  void NarrowNext(std::span<const int> members) { next_narrowed_ = members; }

  // Ends the round; mine() is that of the next one.
  void Next() {
    ++round_;
    arrived_ = 0;
    narrowed_ = std::exchange(next_narrowed_, {});
  }

  // The last round that a member has posted: at least.
  uint64_t PostedBy(int member) {
    const Member& m = members_[static_cast<size_t>(member)];
    const auto posted = [&](int64_t parity) {
      return reinterpret_cast<Slot*>(m.slots + parity * m.slot_bytes)->round.load(std::memory_order_seq_cst);
    };
    return std::max(posted(0), posted(1));
  }

  uint64_t round() const { return round_; }

  // Wakes the members that sleep. Thread-safe.
  void RingAll() const {
    for (int m = 0; m < size(); ++m) {
      if (m != self_) members_[static_cast<size_t>(m)].doorbell->Ring();
    }
  }

 private:
  Slot& SlotOf(int member) {
    const Member& m = members_[static_cast<size_t>(member)];
    return *reinterpret_cast<Slot*>(m.slots + static_cast<int64_t>(round_ & 1) * m.slot_bytes);
  }

  bool SomeGathered() {
    while (arrived_ < static_cast<int>(narrowed_.size())) {
      const int member = narrowed_[static_cast<size_t>(arrived_)];
      if (member != self_ && !HasPosted(member)) return false;
      ++arrived_;
    }
    return true;
  }

  const std::vector<Member> members_;
  const int self_;
  uint64_t round_ = 1;
  int arrived_ = 0;                                // of all, or of those that the round was narrowed to
  std::span<const int> narrowed_, next_narrowed_;  // empty: all
};

}  // namespace gyre::shm
