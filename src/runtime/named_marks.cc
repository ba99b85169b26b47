#include "runtime/named_marks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

NamedMarks::~NamedMarks() {
  for (const Mark& mark : marks_) gpu_->DestroyEvent(mark.event);
}

absl::Status NamedMarks::Add(device::Gpu::Stream stream) {
  if (std::ranges::any_of(marks_, [&](const Mark& mark) { return mark.stream == stream; })) return absl::OkStatus();
  ASSIGN_OR_RETURN(device::Gpu::Event const event, gpu_->CreateEvent());
  marks_.push_back({stream, event});
  return gpu_->Record(event, stream);
}

absl::Status NamedMarks::Begin(device::Gpu::Stream own) {
  if (begun_) return absl::OkStatus();
  for (const Mark& mark : marks_) RETURN_IF_ERROR(gpu_->Wait(own, mark.event));
  begun_ = true;
  return absl::OkStatus();
}

// Its first mark has been waited for: the event is free for another.
absl::Status NamedMarks::End(device::Gpu::Stream own) {
  RETURN_IF_ERROR(gpu_->Record(marks_.front().event, own));
  ended_ = true;
  return absl::OkStatus();
}

// One stream that is being captured keeps no other from its place.
absl::Status NamedMarks::Arrive() {
  std::lock_guard lock(mutex_);
  if (!ended_ || !failure_.ok()) return failure_;
  absl::Status captured;
  for (Mark& mark : marks_) {
    if (mark.arrived) continue;
    const absl::Status status = gpu_->Wait(mark.stream, marks_.front().event);
    if (absl::IsFailedPrecondition(status)) {
      captured.Update(absl::FailedPreconditionError(
          absl::StrCat("after the capture, wait for the operation again: ", status.message())));
      continue;
    }
    mark.arrived = true;
    if (!status.ok()) failure_.Update(absl::InternalError(absl::StrCat("on this rank's GPU: ", status.message())));
  }
  return failure_.ok() ? captured : failure_;
}

}  // namespace gyre::internal
