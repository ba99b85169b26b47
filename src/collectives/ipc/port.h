// Port: what the members of a channel have on their GPUs to exchange through: an area of memory each, in two halves,
// and two events, all of them open to all members.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "collectives/shm/group.h"
#include "device/gpu.h"
#include "device/gpu_sharing.h"

namespace gyre::internal::ipc {

// What a member shows the others. Plain bytes, in a slot.
struct PortOffer {
  device::GpuSharing::Handle memory = {};
  std::array<device::GpuSharing::Handle, 2> events = {};
  int64_t bytes = 0;  // of the area; 0: it has none
};

// One thread at a time: whoever drives the channel's lane.
class Port {
 public:
  // For the members of the group; `half`: bytes of each half of its area, which all must give alike.
  Port(std::shared_ptr<Group> group, std::shared_ptr<device::Gpu> gpu, int64_t half);

  // Waits for the GPU's work on the area and for those who have it open, at most for kPatience. What is in use then is
  // left to the process's end.
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  static constexpr Duration kPatience = std::chrono::seconds(2);

  // Allocates. After an error the port is good for nothing but to be destroyed.
  absl::StatusOr<PortOffer> Offer();

  // Another member's. kDataLoss: it is of another size.
  absl::Status Open(int member, const PortOffer& offer);

  // All members are open, to all: MarkConnected was called.
  bool connected() const { return connected_; }
  void MarkConnected() { connected_ = true; }

  // It will not be connected: closes what it has opened of the others'.
  void GiveUp() { CloseOthers(); }

  device::Gpu& gpu() const { return *gpu_; }
  device::Gpu::Stream stream() const { return stream_; }  // all of this member's work on areas is queued here
  int64_t half() const { return half_; }
  std::byte* area(int member, int64_t number) const {
    return peers_[static_cast<size_t>(member)].area + (number & 1) * half_;
  }
  device::Gpu::Event event(int member, uint64_t number) const {
    return peers_[static_cast<size_t>(member)].events[number & 1];
  }
  device::Gpu::Event done() const { return done_; }  // this process's own, to be recorded at a call's end

 private:
  struct Peer {
    std::byte* area = nullptr;
    std::array<device::Gpu::Event, 2> events = {};
    bool counted = false;  // in the other's gpu_areas_open
  };

  bool AtRest(TimePoint patience) const;
  bool ClosedByOthers(TimePoint patience) const;
  void CloseOthers();

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<device::Gpu> gpu_;
  const int self_;
  const int64_t half_;
  device::Gpu::Stream stream_ = nullptr;
  device::Gpu::Event done_ = nullptr;
  std::vector<Peer> peers_;  // by member, itself among them
  bool connected_ = false;
};

}  // namespace gyre::internal::ipc
