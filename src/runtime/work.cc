#include "gyre/work.h"

#include "absl/status/status.h"
#include "base/status.h"
#include "collectives/lane.h"
#include "runtime/named_marks.h"
#include "runtime/progress.h"

namespace gyre {

// Not before all streams have their place behind it, but where the GPU fails: Wait tells.
bool Work::Done() const {
  if (operation_ == nullptr || progress_->process().forked()) return true;
  if (!operation_->done()) return false;
  return marks_ == nullptr || !absl::IsFailedPrecondition(marks_->Arrive());
}

// A stream that is being captured comes before the operation's own end, which is told when this is called again.
absl::Status Work::Wait() {
  if (operation_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(progress_->process().Check());
  if (!operation_->done()) progress_->Wait(*operation_);
  absl::Status arrived = marks_ != nullptr ? marks_->Arrive() : absl::OkStatus();
  if (absl::IsFailedPrecondition(arrived) || operation_->status().ok()) return arrived;
  return operation_->status();
}

}  // namespace gyre
