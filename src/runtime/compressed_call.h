// CompressedCall: the exchange of one part as one operation: the calls that it comes to, one after the other.
#pragma once

#include <chrono>
#include <memory>

#include "collectives/lane.h"
#include "runtime/composition.h"
#include "runtime/compressed_exchange.h"

namespace gyre::internal {

class CompressedCall final : public Pollable {
 public:
  // Begins `part`; both must outlive the object. All of it has to end within `timeout` of StartClock.
  CompressedCall(const CommunicatorState& communicator, CompressedExchange& exchange, ExchangePart part,
                 std::chrono::milliseconds timeout);

  // Once it has ended with an error: whether that is this rank's own, or its host's, of which the others do not know.
  bool failed_here() const { return failed_here_; }

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint now) override;
  TimePoint deadline() const override { return call_ != nullptr ? call_->deadline() : deadline_; }
  bool AddWaits(std::vector<pollfd>& waits) const override { return call_ != nullptr && call_->AddWaits(waits); }

 private:
  bool GoOn();
  bool Make(Call call);
  bool Fail(absl::Status status, bool here);

  const CommunicatorState& communicator_;
  CompressedExchange& exchange_;
  const std::chrono::milliseconds timeout_;
  TimePoint deadline_ = TimePoint::max();
  std::shared_ptr<Pollable> call_;  // in course
  bool ended_ = false;
  bool failed_here_ = false;
};

}  // namespace gyre::internal
