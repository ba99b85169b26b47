// CallSequence: what one exchange of gradients comes to in collective calls, with work of this rank between them; and
// SequenceCall, which makes these calls as one operation.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "collectives/call.h"
#include "collectives/lane.h"
#include "runtime/composition.h"

namespace gyre::internal {

class CallSequence {
 public:
  virtual ~CallSequence() = default;

  // Goes on: the first call, then the next one each time that one has ended well; nothing once the results are there.
  // What the calls read and write stays until then. Their timeouts are the caller's to set. Errors are this rank's own.
  virtual absl::StatusOr<std::optional<Call>> Next() = 0;

  // Whether what was begun on a device is done: until then Next is not to be asked, the call that it gave last not to
  // be made, and the results are not there. Looks, and does not wait. Errors as Next's.
  virtual absl::StatusOr<bool> Ready() { return true; }

  // What Ready waits for: "GPU 0 of rank 1 had not ...".
  virtual std::string Awaited() const { return "it had not begun"; }

  // Whether the call that Next gave last is of the ranks of this host alone.
  virtual bool within_host() const { return false; }
};

class SequenceCall final : public Pollable {
 public:
  // `sequence` has begun; both must outlive the object. All of it has to end within `timeout` of StartClock.
  SequenceCall(const CommunicatorState& communicator, CallSequence& sequence, std::chrono::milliseconds timeout)
      : communicator_(communicator), sequence_(sequence), timeout_(timeout) {}

  // Once it has ended with an error: whether that is this rank's own, or its host's, of which the others do not know.
  bool failed_here() const { return failed_here_; }

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint now) override;
  TimePoint deadline() const override;  // for its driver
  bool AddWaits(std::vector<pollfd>& waits) const override { return call_ != nullptr && call_->AddWaits(waits); }

 private:
  shm::Progress OnCallEnded();
  shm::Progress GoOn();
  shm::Progress Make(Call call);
  bool CheckWait(TimePoint now);
  shm::Progress Fail(absl::Status status, bool here);

  const CommunicatorState& communicator_;
  CallSequence& sequence_;
  const std::chrono::milliseconds timeout_;
  TimePoint deadline_ = TimePoint::max();
  std::optional<Call> next_;        // that Next gave last
  bool asked_ = false;              // next_ is to be made, or, if there is none, all has ended
  bool waits_ = false;              // for a device
  std::shared_ptr<Pollable> call_;  // in course
  bool ended_ = false;
  bool failed_here_ = false;
};

}  // namespace gyre::internal
