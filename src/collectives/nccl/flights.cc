#include "collectives/nccl/flights.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace gyre::internal::nccl {

shm::Progress Flights::Poll() {
  std::lock_guard lock(mutex_);
  if (ended_) return shm::Progress::kDone;
  if (trouble_) return shm::Progress::kNone;
  const auto unfinished = connection_->Unfinished();
  if (!unfinished.ok()) {
    connection_->Abort();
    trouble_ = unfinished.status();
    named_by_ = std::chrono::steady_clock::now() + kNamingPatience;
    return shm::Progress::kNone;
  }
  if (*unfinished > 0) return shm::Progress::kNone;
  End(absl::OkStatus());
  return shm::Progress::kDone;
}

bool Flights::Check(TimePoint now) {
  std::lock_guard lock(mutex_);
  if (ended_) return true;
  // What is nearly done may still end, and others may need this rank for it: see ~Connection.
  if (members_.group->node().closed()) return End(absl::FailedPreconditionError("the runtime was shut down"));
  if (const auto cause = members_.FindCause("work on the GPU"); cause) {
    members_.Break(*cause);  // first: nothing of NCCL's is to keep the others from it
    connection_->Abort();
    return End(cause->status);
  }
  absl::Status status;
  if (trouble_) {
    if (now < named_by_) return false;
    status = *trouble_;
  } else if (const auto late = connection_->Late(now); late) {
    status = absl::DeadlineExceededError(
        absl::StrCat(*late, " was queued in time, but the GPU had not done it at its deadline"));
  } else {
    return false;
  }
  members_.GiveUp(status);
  connection_->Abort();
  return End(status);
}

TimePoint Flights::deadline() const {
  std::lock_guard lock(mutex_);
  return trouble_ ? named_by_ : connection_->NextDeadline();
}

bool Flights::End(absl::Status status) {
  ended_ = true;
  status_ = std::move(status);
  return true;
}

}  // namespace gyre::internal::nccl
