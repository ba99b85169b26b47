#include "gyre/work.h"

#include "collectives/lane.h"
#include "runtime/named_marks.h"
#include "runtime/progress.h"

namespace gyre {

bool Work::Done() const {
  if (operation_ == nullptr) return true;
  if (!operation_->done()) return false;
  if (marks_ != nullptr) marks_->Arrive().IgnoreError();  // Wait tells
  return true;
}

absl::Status Work::Wait() {
  if (operation_ == nullptr) return absl::OkStatus();
  if (!operation_->done()) progress_->Wait(*operation_);
  const absl::Status arrived = marks_ != nullptr ? marks_->Arrive() : absl::OkStatus();
  return operation_->status().ok() ? arrived : operation_->status();
}

}  // namespace gyre
