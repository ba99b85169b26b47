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

absl::Status NamedMarks::Arrive() {
  std::lock_guard lock(mutex_);
  if (!ended_ || std::exchange(arrived_, true)) return arrival_;
  for (const Mark& mark : marks_) {
    const absl::Status status = gpu_->Wait(mark.stream, marks_.front().event);
    if (!status.ok()) arrival_.Update(absl::InternalError(absl::StrCat("on this rank's GPU: ", status.message())));
  }
  return arrival_;
}

}  // namespace gyre::internal
