// What the conductor does with tensors on a GPU, on the threads that submit them.
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/conductor.h"

namespace gyre::internal {

namespace {

// Why a tensor on a GPU cannot be marked, in codes that do not say that nothing goes on.
absl::Status OfUnusable(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented: return status;
    case absl::StatusCode::kFailedPrecondition: return absl::InvalidArgumentError(status.message());  // Gpu::Record
    default: return absl::UnavailableError(status.message());
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<device::Gpu>> Conductor::OpenGpu(int ordinal) {
  RETURN_IF_ERROR(process().Check());
  ASSIGN_OR_RETURN(const OpenedGpu opened, state_->runtime().gpus().Get(ordinal));
  std::lock_guard lock(mutex_);
  if (gpu_ == nullptr) {
    ASSIGN_OR_RETURN(gpu_, NamedGpu::Open(opened.gpu));
  }
  if (gpu_->gpu()->ordinal() == ordinal) return gpu_->gpu();
  return absl::InvalidArgumentError(absl::StrCat("the tensor is on GPU ", ordinal, "; those before it were on GPU ",
                                                 gpu_->gpu()->ordinal(), " of this rank, and stay on one"));
}

absl::Status Conductor::Mark(const Call& call, std::shared_ptr<NamedMarks>& marks) {
  auto gpu = OpenGpu(DeviceOf(call).gpu);
  if (!gpu.ok()) return OfUnusable(gpu.status());
  if (marks == nullptr) marks = std::make_shared<NamedMarks>(*std::move(gpu));
  for (const Device& device : {call.in.device, call.out.device}) {
    if (device.on_gpu()) RETURN_IF_ERROR(OfUnusable(marks->Add(device.stream)));
  }
  return absl::OkStatus();
}

NamedGpu* Conductor::gpu() {
  std::lock_guard lock(mutex_);
  return gpu_.get();
}

}  // namespace gyre::internal
