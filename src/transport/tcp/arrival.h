// Arrival: an authenticated connection whose purpose is still to come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/event_loop.h"
#include "transport/tcp/control_frames.h"

namespace gyre::tcp {

// All on the loop's thread.
class Arrival {
 public:
  // Called once, unless the arrival is destroyed before; may destroy it. Not a byte after the purpose was consumed.
  // kUnavailable: the connection ended first; kDeadlineExceeded; kDataLoss: what came was no purpose.
  using OnDone = std::function<void(absl::StatusOr<Purpose>, UniqueFd)>;

  // `connection`: non-blocking, of the rank `rank`.
  static absl::StatusOr<std::unique_ptr<Arrival>> Create(EventLoop& loop, UniqueFd connection, int rank, uint64_t epoch,
                                                         TimePoint deadline, OnDone on_done);
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  int rank() const { return rank_; }

 private:
  Arrival(EventLoop& loop, UniqueFd connection, int rank, uint64_t epoch, OnDone on_done);
  void Ready();
  absl::StatusOr<Purpose> Decode() const;
  void Finish(absl::StatusOr<Purpose> purpose);

  EventLoop& loop_;
  UniqueFd fd_;
  const int rank_;
  const uint64_t epoch_;
  OnDone on_done_;
  EventLoop::TimerId timer_{};
  std::array<std::byte, kPurposeFrameBytes> bytes_{};
  size_t filled_ = 0;
};

}  // namespace gyre::tcp
