#include "runtime/one_gpu.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/call.h"

namespace gyre::internal {

absl::StatusOr<std::shared_ptr<device::Gpu>> OneGpu::Open(const Device& device) {
  if (device.gpu < 0)
    return absl::InvalidArgumentError(absl::StrCat("they are on GPU ", device.gpu, ", which cannot be"));
  if (IsPerThread(device)) return absl::InvalidArgumentError(absl::StrCat("they are on ", kPerThreadText));
  if (gpu_ == nullptr) {
    ASSIGN_OR_RETURN(const OpenedGpu opened, gpus_.Get(device.gpu));
    gpu_ = opened.gpu;
  }
  if (gpu_->ordinal() == device.gpu) return gpu_;
  return absl::InvalidArgumentError(
      absl::StrCat("they are on GPU ", device.gpu, "; what came before them was on GPU ", gpu_->ordinal()));
}

}  // namespace gyre::internal
