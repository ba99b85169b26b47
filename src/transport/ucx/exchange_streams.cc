// What an exchange does for its streams.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/ucx/exchange.h"
#include "transport/ucx/slot.h"

namespace gyre::ucx {

namespace {

// The better reason for a stream's end comes by the control connection: it is given a moment.
constexpr Duration kGrace = std::chrono::milliseconds(250);

constexpr size_t kSmall = 16 << 10;  // bytes; larger packets all have room for the largest

size_t CopyPieces(std::span<const Bytes> pieces, std::byte* into, size_t room) {
  size_t filled = 0;
  for (const Bytes piece : pieces) {
    const size_t part = std::min(piece.size(), room - filled);
    if (part > 0) std::memcpy(into + filled, piece.data(), part);
    filled += part;
  }
  return filled;
}

}  // namespace

// The caller drives the wire from now on, for a while.
void Exchange::Touch(Slot& slot) {
  touches_.fetch_add(1);
  if (resting_.exchange(false)) Nudge();
  if (slot.bell == nullptr) return;
  slot.bell->armed = false;
  if (!std::exchange(slot.bell->rung, false)) return;
  uint64_t count = 0;
  (void)!read(slot.bell->fd.get(), &count, sizeof(count));
}

void Exchange::Ring(Slot& slot) {
  slot.bell->armed = false;
  if (!slot.bell->fd || std::exchange(slot.bell->rung, true)) return;
  const uint64_t one = 1;
  (void)!write(slot.bell->fd.get(), &one, sizeof(one));
}

absl::Status Exchange::CheckOpen() const {
  if (!closed_) return absl::OkStatus();
  return absl::FailedPreconditionError("this rank has closed its connections to other hosts");
}

// The stream has ended: 0 for a moment, then why.
absl::StatusOr<size_t> Exchange::Ended(const Slot& slot, std::optional<TimePoint>& since,
                                       const std::string& how) const {
  const TimePoint now = std::chrono::steady_clock::now();
  if (!since) since = now;
  if (now - *since < kGrace) return 0;
  return absl::UnavailableError(absl::StrCat(contacts_.at(slot.line.peer()).peer.name, " ", how, slot.line.channel()));
}

// Nothing is there to be read, or there is no room: may there ever be?
absl::StatusOr<size_t> Exchange::EndOf(const Slot& slot, bool reading, std::optional<TimePoint>& since) const {
  const Contact& contact = contacts_.at(slot.line.peer());
  const bool ended = reading ? slot.line.at_end() : slot.line.end_known();
  const absl::Status end = end_of_(slot.line.peer());
  if (!end.ok()) {
    // What a peer has sent before it left may still be on its way.
    const TimePoint now = std::chrono::steady_clock::now();
    if (!since) since = now;
    if (reading && !ended && now - *since < kGrace) return 0;
    return end;
  }
  if (ended) return Ended(slot, since, "ended its part in channel ");
  if (slot.spoilt) return Ended(slot, since, "sent what was lost on its way by UCX in channel ");
  if (contact.failure) {
    return Ended(slot, since, absl::StrCat("is not reached by UCX (", *contact.failure, ") in channel "));
  }
  return 0;
}

absl::StatusOr<size_t> Exchange::Write(Slot& slot, std::span<const Bytes> pieces) {
  size_t wanted = 0;
  for (const Bytes piece : pieces) wanted += piece.size();
  if (wanted == 0) return 0;
  Line& line = slot.line;
  std::unique_ptr<Packet> packet;
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(CheckOpen());
    Touch(slot);
    ASSIGN_OR_RETURN(packet, MakeRoom(slot, wanted));
  }
  if (packet == nullptr) return 0;
  CopyPieces(pieces, packet->data.get(), packet->size);
  const size_t size = packet->size;
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckOpen());
  Contact& contact = contacts_.at(line.peer());
  if (!Reach(line.peer(), contact)) return EndOf(slot, false, slot.writing_ended);
  packet->header = Encode(contact.peer.receives, {Kind::kData, self_, line.channel(), line.CountSent(size)});
  wire_->Send(line.peer(), std::move(packet));
  return size;
}

// Null: there is no room now.
absl::StatusOr<std::unique_ptr<Packet>> Exchange::MakeRoom(Slot& slot, size_t wanted) {
  RETURN_IF_ERROR(EndOf(slot, false, slot.writing_ended).status());
  if (slot.writing_ended) return nullptr;
  size_t room = slot.line.Room(wanted);
  if (room == 0 && Progress()) room = slot.line.Room(wanted);
  if (room == 0) return nullptr;
  std::unique_ptr<Packet> packet;
  if (room > kSmall && !packets_.empty()) {
    packet = std::move(packets_.back());
    packets_.pop_back();
  } else {
    packet = std::make_unique<Packet>();
    packet->capacity = room > kSmall ? kMostBytes : room;
    packet->data = std::make_unique_for_overwrite<std::byte[]>(packet->capacity);
  }
  packet->size = room;
  return packet;
}

absl::StatusOr<size_t> Exchange::Read(Slot& slot, MutableBytes into) {
  if (into.empty()) return 0;
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckOpen());
  Touch(slot);
  Line& line = slot.line;
  if (line.Front().empty()) Progress();
  const Bytes front = line.Front();
  if (front.empty()) return EndOf(slot, true, slot.reading_ended);
  const size_t size = std::min(front.size(), into.size());
  std::memcpy(into.data(), front.data(), size);
  if (const auto credit = line.Consume(size)) Tell(line.peer(), Kind::kCredit, line.channel(), *credit);
  return size;
}

void Exchange::AddWaits(Slot& slot, bool to_read, bool to_write, std::vector<pollfd>& waits) {
  const std::lock_guard lock(mutex_);
  if (closed_ || slot.bell == nullptr || !slot.bell->fd) return;
  touches_.fetch_add(1);
  slot.bell->armed = true;
  waits.push_back({slot.bell->fd.get(), POLLIN, 0});
  const bool ready =
      (to_read && !slot.line.Front().empty()) || (to_write && !slot.writing_ended && slot.line.Room(kMostBytes) > 0);
  if (ready || !wire_->Arm()) return Ring(slot);
  waits.push_back({wire_->descriptor(), POLLIN, 0});
}

}  // namespace gyre::ucx
