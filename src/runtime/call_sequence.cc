#include "runtime/call_sequence.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "collectives/hierarchical/operation.h"
#include "collectives/host_calls.h"
#include "collectives/shm/make_operation.h"

namespace gyre::internal {

void SequenceCall::StartClock(TimePoint now) {
  deadline_ = DeadlineAfter(now, timeout_);
}

// A device rings no bell: who waits for it is to look again soon.
TimePoint SequenceCall::deadline() const {
  if (call_ != nullptr) return call_->deadline();
  return waits_ ? TimePoint{} : deadline_;
}

shm::Progress SequenceCall::Poll() {
  if (ended_) return shm::Progress::kDone;
  if (call_ == nullptr) return GoOn();
  const shm::Progress progress = call_->Poll();
  return progress == shm::Progress::kDone ? OnCallEnded() : progress;
}

bool SequenceCall::Check(TimePoint now) {
  if (ended_) return true;
  if (call_ == nullptr) return waits_ && CheckWait(now);
  return call_->Check(now) && OnCallEnded() == shm::Progress::kDone;
}

shm::Progress SequenceCall::OnCallEnded() {
  if (!call_->status().ok()) return Fail(call_->status(), sequence_.within_host());
  call_.reset();
  return GoOn();
}

// The work after the call that has ended, up to the next one, or to where a device has yet to do some of it.
shm::Progress SequenceCall::GoOn() {
  for (;;) {
    const auto ready = sequence_.Ready();
    if (!ready.ok()) return Fail(ready.status(), true);
    waits_ = !*ready;
    if (waits_) return shm::Progress::kNone;
    if (asked_) break;
    auto next = sequence_.Next();
    if (!next.ok()) return Fail(next.status(), true);
    next_ = *std::move(next);
    asked_ = true;
  }
  asked_ = false;
  if (next_) return Make(*next_);
  ended_ = true;
  return shm::Progress::kDone;
}

shm::Progress SequenceCall::Make(Call call) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - std::chrono::steady_clock::now());
  call.timeout = std::max(left, milliseconds(1));
  const auto team = sequence_.within_host() ? nullptr : communicator_.team();
  const auto& group = communicator_.group();
  const int rank = team != nullptr ? team->rank() : group->rank();
  const int size = team != nullptr ? team->size() : group->size();
  if (absl::Status wrong = Validate(call, rank, size); !wrong.ok()) return Fail(std::move(wrong), true);
  if (team != nullptr) {
    call_ = MakeHierarchical(team, call);
  } else {
    call_ = MakeOperation(*group, call, []<typename T>(std::type_identity<T>, auto&&... arguments) {
      return std::shared_ptr<Pollable>(std::make_shared<T>(arguments...));
    });
  }
  call_->StartClock(std::chrono::steady_clock::now());
  return shm::Progress::kSome;
}

// Between calls: whether there is cause to wait no longer for a device.
bool SequenceCall::CheckWait(TimePoint now) {
  const HostCalls calls(communicator_.group(), communicator_.team());
  if (auto cause = calls.FindCause("the exchange"); cause) {
    Fail(*std::move(cause), false);
    return true;
  }
  if (now < deadline_) return false;
  Fail(absl::DeadlineExceededError(absl::StrFormat("the exchange timed out after %.3g s: %s",
                                                   std::chrono::duration<double>(timeout_).count(),
                                                   sequence_.Awaited())),
       true);
  return true;
}

shm::Progress SequenceCall::Fail(absl::Status status, bool here) {
  status_ = std::move(status);
  failed_here_ = here;
  ended_ = true;
  return shm::Progress::kDone;
}

}  // namespace gyre::internal
