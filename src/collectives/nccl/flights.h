// Flights: sees to it that what was launched ends. A call on GPUs returns when its work has been queued; from then on
// until it is done, this watches deadlines, losses and NCCL's errors, and aborts for them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "collectives/lane.h"
#include "collectives/members.h"
#include "collectives/nccl/connection.h"

namespace gyre::internal::nccl {

// How long an error of NCCL's waits for Gyre's own word on which rank was lost.
inline constexpr Duration kNamingPatience = std::chrono::milliseconds(300);

// One watch, until nothing is in flight any more. Queued in a lane of its own, so that it goes on beside calls.
class Flights final : public Pollable {
 public:
  Flights(std::shared_ptr<Connection> connection, Members members)
      : connection_(std::move(connection)), members_(std::move(members)) {}

  // False: it has ended, and what was launched since needs a new one.
  bool goes_on() const {
    std::lock_guard lock(mutex_);
    return !ended_;
  }

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint /*now*/) override {}
  TimePoint deadline() const override;

 private:
  bool End(absl::Status status);

  const std::shared_ptr<Connection> connection_;
  const Members members_;
  mutable std::mutex mutex_;  // held while it decides to end
  bool ended_ = false;
  std::optional<absl::Status> trouble_;  // what NCCL says; whoever is lost has yet to be named
  TimePoint named_by_{};
};

}  // namespace gyre::internal::nccl
