// Ending: a communicator's end in order, which other ranks may be long in coming to, beside everything else.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "collectives/lane.h"
#include "collectives/nccl/connection.h"

namespace gyre::internal::nccl {

// Queued in the connection's lane, behind the watch over what was launched. NCCL's calls block meanwhile, so they are
// made on a thread of its own; how long is the connection's matter (Connection::End).
class Ending final : public Pollable {
 public:
  explicit Ending(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~Ending() override {
    if (thread_.joinable()) thread_.join();
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  shm::Progress Poll() override;
  bool Check(TimePoint /*now*/) override { return ended_.load(std::memory_order_acquire); }  // also at a shutdown
  void StartClock(TimePoint /*now*/) override {}
  TimePoint deadline() const override { return TimePoint::max(); }

 private:
  const std::shared_ptr<Connection> connection_;
  std::thread thread_;
  bool begun_ = false;
  std::atomic<bool> ended_{false};
};

}  // namespace gyre::internal::nccl
