#include "runtime/gpus.h"

#include <utility>

#include "base/status.h"
#include "device/cuda/factory.h"
#include "gyre/communicator.h"
#include "runtime/composition.h"

namespace gyre::internal {

absl::StatusOr<std::shared_ptr<void>> AllocateOn(const std::shared_ptr<device::Gpu>& gpu, int64_t bytes) {
  ASSIGN_OR_RETURN(void* const memory, gpu->Allocate(bytes));
  return std::shared_ptr<void>(memory, [gpu](void* piece) { gpu->Free(piece); });
}

Gpus::Gpus() : open_(device::cuda::OpenGpu) {}

Gpus& Gpus::Of(Communicator& communicator) {
  return communicator.state_->runtime().gpus();
}

absl::StatusOr<OpenedGpu> Gpus::Get(int ordinal) {
  std::lock_guard lock(mutex_);
  if (const auto known = opened_.find(ordinal); known != opened_.end()) return known->second;
  ASSIGN_OR_RETURN(std::shared_ptr<device::Gpu> gpu, open_(ordinal));
  return opened_[ordinal] = OpenedGpu{gpu, std::make_shared<staged::Rings>(gpu, arena_, sizes_)};
}

nccl::Api* Gpus::nccl() {
  if (!by_cuda_) return nccl_;
  const auto api = nccl::LoadApi();
  return api.ok() ? *api : nullptr;
}

}  // namespace gyre::internal
