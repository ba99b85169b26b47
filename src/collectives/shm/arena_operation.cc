#include "collectives/shm/arena_operation.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace gyre::internal {

namespace {

// From a few MiB on memcpy writes past the caches. That is right for what no cache can hold; what is shorter than that
// goes in blocks too short for it.
constexpr int64_t kPastCaches = 64 << 20;
constexpr int64_t kBlock = 256 << 10;

}  // namespace

void Copies::Add(void* to, const void* from, int64_t bytes) {
  if (bytes == 0 || to == from) return;
  const int64_t block = bytes < kPastCaches ? kBlock : bytes;
  copies_.push_back({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, block});
}

bool Copies::Advance(int64_t bytes) {
  while (next_ < copies_.size() && bytes > 0) {
    Copy& copy = copies_[next_];
    const int64_t now = std::min({bytes, copy.bytes, copy.block});
    std::memcpy(copy.to, copy.from, static_cast<size_t>(now));
    bytes -= now;
    copy = {copy.to + now, copy.from + now, copy.bytes - now, copy.block};
    if (copy.bytes == 0) ++next_;
  }
  return next_ == copies_.size();
}

int ArenaOperation::RankOf(int member) const {
  return group().ranks()[static_cast<size_t>(channel().members[static_cast<size_t>(member)])];
}

int64_t ArenaOperation::OffsetOf(const void* data, int64_t bytes) const {
  if (bytes == 0) return 0;
  return group().node().arena()->OffsetOf(data, bytes).value_or(shm::kNowhere);
}

// The offset comes from another process's memory.
std::byte* ArenaOperation::Reach(int member, int64_t offset, int64_t bytes) const {
  const int rank = RankOf(member);
  if (offset < 0 || bytes < 0 || offset > group().node().arena_size(rank) - bytes) return nullptr;
  return group().node().arena_data(rank) + offset;
}

void ArenaOperation::Publish(int64_t round) {
  if (way_ == Way::kDirect) return;
  if (way_ == Way::kUndecided) {
    const shm::Slot::Offsets offsets = Share();
    shared_ = offsets.in != shm::kNowhere;
    if (shared_) {
      meeting().mine().offsets = offsets;
      return;
    }
    // If the others could not either, this is the first chunk already.
  }
  PublishChunk(round - first_round_);
}

Operation::Next ArenaOperation::Consume(int64_t round) {
  switch (way_) {
    case Way::kUndecided: return Decide(round);
    case Way::kStaged: return ConsumeChunk(round - first_round_);
    case Way::kDirect: break;
  }
  if (working_) return Direct();
  // The second meeting. A member that has given up while this rank still read its buffers may have changed them.
  return group().usable() ? Next::kEnd : EndBroken();
}

ArenaOperation::Sharing ArenaOperation::LookAround() {
  int shared = shared_ ? 1 : 0;
  for (int m = 0; m < size(); ++m) {
    if (m != rank() && meeting().slot(m).offsets.in != shm::kNowhere) ++shared;
  }
  if (shared == 0) return Sharing::kNone;
  return shared == size() ? Sharing::kAll : Sharing::kSome;
}

Operation::Next ArenaOperation::Decide(int64_t round) {
  if (!Agree()) return Next::kEnd;
  const Sharing sharing = LookAround();
  if (sharing == Sharing::kAll) {
    way_ = Way::kDirect;
    working_ = true;
    if (!BeginDirect()) {
      return GiveUp(absl::DataLossError(absl::StrCat(Context(), ": a rank announced a buffer outside its arena")));
    }
    return Direct();
  }
  way_ = Way::kStaged;
  if (sharing == Sharing::kNone) return Consume(round);
  first_round_ = round + 1;  // who hoped for the direct way has published no chunk
  return Next::kRound;
}

Operation::Next ArenaOperation::Direct() {
  if (group().node().closed()) return EndBroken();
  if (const int gone = FirstGone(); gone >= 0) return GiveUpOn(channel().members[static_cast<size_t>(gone)]);
  const bool all = WorkDirectly();
  // Nobody can have come to the end in order by now: who has left has given up, and what was read may be anything.
  if (const int gone = FirstGone(); gone >= 0) return GiveUpOn(channel().members[static_cast<size_t>(gone)]);
  if (!all) return Next::kAgain;
  working_ = false;
  return Next::kRound;
}

}  // namespace gyre::internal
