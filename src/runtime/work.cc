#include "gyre/work.h"

#include "collectives/lane.h"
#include "runtime/progress.h"

namespace gyre {

bool Work::Done() const {
  return operation_ == nullptr || operation_->done();
}

absl::Status Work::Wait() {
  if (operation_ == nullptr) return absl::OkStatus();
  if (!operation_->done()) progress_->Wait(*operation_);
  return operation_->status();
}

}  // namespace gyre
