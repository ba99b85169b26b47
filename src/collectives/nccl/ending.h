// Ending: a communicator's end in order, which other ranks may be long in coming to, beside everything else.
#pragma once

#include <memory>
#include <utility>

#include "collectives/lane.h"
#include "collectives/nccl/aside.h"
#include "collectives/nccl/connection.h"

namespace gyre::internal::nccl {

// Queued in the connection's lane, behind the watch over what was launched. NCCL's calls block meanwhile, so they are
// made aside; how long is the connection's matter (Connection::End), and the object's end waits for it.
class Ending final : public Pollable {
 public:
  explicit Ending(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~Ending() override {
    if (end_ != nullptr) end_->Await(TimePoint::max());
  }

  shm::Progress Poll() override {
    if (end_ == nullptr) {
      end_ = std::make_unique<Aside>("an NCCL communicator's end", [connection = connection_] { connection->End(); });
    }
    return end_->ended() ? shm::Progress::kDone : shm::Progress::kNone;
  }
  bool Check(TimePoint /*now*/) override { return end_ != nullptr && end_->ended(); }  // also at a shutdown
  void StartClock(TimePoint /*now*/) override {}
  TimePoint deadline() const override { return TimePoint::max(); }

 private:
  const std::shared_ptr<Connection> connection_;
  std::unique_ptr<Aside> end_;  // once it has begun
};

}  // namespace gyre::internal::nccl
