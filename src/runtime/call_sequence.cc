#include "runtime/call_sequence.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "collectives/hierarchical/operation.h"
#include "collectives/shm/make_operation.h"

namespace gyre::internal {

void SequenceCall::StartClock(TimePoint now) {
  deadline_ = DeadlineAfter(now, timeout_);
}

shm::Progress SequenceCall::Poll() {
  if (ended_) return shm::Progress::kDone;
  if (call_ == nullptr) return GoOn() ? shm::Progress::kSome : shm::Progress::kDone;
  const shm::Progress progress = call_->Poll();
  if (progress != shm::Progress::kDone) return progress;
  if (!call_->status().ok()) {
    Fail(call_->status(), sequence_.within_host());
    return shm::Progress::kDone;
  }
  return GoOn() ? shm::Progress::kSome : shm::Progress::kDone;
}

bool SequenceCall::Check(TimePoint now) {
  if (ended_) return true;
  if (call_ == nullptr || !call_->Check(now)) return false;
  if (!call_->status().ok()) return !Fail(call_->status(), sequence_.within_host());
  return !GoOn();
}

// The work after the call that has ended, up to the next one. False: all has ended.
bool SequenceCall::GoOn() {
  call_.reset();
  auto next = sequence_.Next();
  if (!next.ok()) return Fail(next.status(), true);
  if (next->has_value()) return Make(**next);
  ended_ = true;
  return false;
}

bool SequenceCall::Make(Call call) {
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
  return true;
}

bool SequenceCall::Fail(absl::Status status, bool here) {
  status_ = std::move(status);
  failed_here_ = here;
  ended_ = true;
  return false;
}

}  // namespace gyre::internal
