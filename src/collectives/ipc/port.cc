#include "collectives/ipc/port.h"

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal::ipc {

Port::Port(std::shared_ptr<Group> group, std::shared_ptr<device::Gpu> gpu, int64_t half)
    : group_(std::move(group)),
      gpu_(std::move(gpu)),
      self_(group_->rank()),
      half_(half),
      peers_(static_cast<size_t>(group_->size())) {}

// Whether all that was queued is done.
bool Port::AtRest(TimePoint patience) const {
  if (done_ == nullptr) return true;
  if (!gpu_->Record(done_, stream_).ok()) return false;
  absl::StatusOr<bool> done = gpu_->Done(done_);
  while (done.ok() && !*done && std::chrono::steady_clock::now() < patience) {
    std::this_thread::yield();
    done = gpu_->Done(done_);
  }
  return done.ok() && *done;
}

// Whether nobody has this member's area open any more. Who was lost will not close it, and may have work on it queued.
bool Port::ClosedByOthers(TimePoint patience) const {
  const std::atomic<int32_t>& open = group_->gpu_areas_open(self_);
  while (open.load(std::memory_order_acquire) != 0) {
    if (std::chrono::steady_clock::now() >= patience) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

void Port::CloseOthers() {
  for (int member = 0; member < static_cast<int>(peers_.size()); ++member) {
    if (member == self_) continue;
    Peer& peer = peers_[static_cast<size_t>(member)];
    for (const device::Gpu::Event event : peer.events) {
      if (event != nullptr) gpu_->sharing().CloseEvent(event);
    }
    if (peer.area != nullptr) gpu_->sharing().CloseMemory(peer.area);
    if (peer.counted) group_->gpu_areas_open(member).fetch_sub(1, std::memory_order_release);
    peer = {};
  }
}

// What waits for a member that died may wait for ever, and to free memory would wait with it. And what others have
// open is theirs too: CUDA leaves undefined what becomes of their work on it.
Port::~Port() {
  const TimePoint patience = std::chrono::steady_clock::now() + kPatience;
  if (!AtRest(patience)) return;
  CloseOthers();
  if (!ClosedByOthers(patience)) return;
  const Peer& own = peers_[static_cast<size_t>(self_)];
  for (const device::Gpu::Event event : own.events) {
    if (event != nullptr) gpu_->DestroyEvent(event);
  }
  if (own.area != nullptr) gpu_->Free(own.area);
  if (done_ != nullptr) gpu_->DestroyEvent(done_);
  if (stream_ != nullptr) gpu_->DestroyStream(stream_);
}

absl::StatusOr<PortOffer> Port::Offer() {
  device::GpuSharing& sharing = gpu_->sharing();
  PortOffer offer{.bytes = 2 * half_};
  Peer& own = peers_[static_cast<size_t>(self_)];
  ASSIGN_OR_RETURN(stream_, gpu_->CreateStream());
  ASSIGN_OR_RETURN(done_, gpu_->CreateEvent());
  ASSIGN_OR_RETURN(void* const memory, gpu_->Allocate(offer.bytes));
  own.area = static_cast<std::byte*>(memory);
  ASSIGN_OR_RETURN(offer.memory, sharing.ExportMemory(memory));
  for (size_t i = 0; i < own.events.size(); ++i) {
    ASSIGN_OR_RETURN(own.events[i], sharing.CreateEvent());
    ASSIGN_OR_RETURN(offer.events[i], sharing.ExportEvent(own.events[i]));
  }
  return offer;
}

absl::Status Port::Open(int member, const PortOffer& offer) {
  if (offer.bytes != 2 * half_) {
    return absl::DataLossError(absl::StrCat("an area on a GPU has ", offer.bytes, " bytes, not ", 2 * half_));
  }
  Peer& peer = peers_[static_cast<size_t>(member)];
  group_->gpu_areas_open(member).fetch_add(1, std::memory_order_acq_rel);
  peer.counted = true;
  ASSIGN_OR_RETURN(void* const memory, gpu_->sharing().OpenMemory(offer.memory));
  peer.area = static_cast<std::byte*>(memory);
  for (size_t i = 0; i < peer.events.size(); ++i) {
    ASSIGN_OR_RETURN(peer.events[i], gpu_->sharing().OpenEvent(offer.events[i]));
  }
  return absl::OkStatus();
}

}  // namespace gyre::internal::ipc
