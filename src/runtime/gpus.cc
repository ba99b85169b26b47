#include "runtime/gpus.h"

#include <optional>
#include <utility>

#include "base/process_mark.h"
#include "base/status.h"
#include "base/thread.h"
#include "device/cuda/factory.h"
#include "gyre/communicator.h"
#include "runtime/composition.h"

namespace gyre::internal {

std::string NameOfDevice(const Device& device) {
  return device.on_gpu() ? absl::StrCat("GPU ", device.gpu) : "the host";
}

absl::StatusOr<std::shared_ptr<void>> AllocateOn(const std::shared_ptr<device::GpuAllocator>& memory, int64_t bytes) {
  ASSIGN_OR_RETURN(void* const piece, memory->Allocate(bytes));
  return std::shared_ptr<void>(piece, [memory, process = std::make_shared<const ProcessMark>()](void* freed) {
    if (process->forked()) return KeepUntilExit(memory);  // it is the parent's, who may be using it
    memory->Free(freed);
  });
}

Gpus::Gpus() : open_(device::cuda::OpenGpu) {}

Gpus& Gpus::Of(Communicator& communicator) {
  return communicator.state_->runtime().gpus();
}

absl::StatusOr<OpenedGpu> Gpus::Get(int ordinal) {
  const auto known = [&]() -> std::optional<OpenedGpu> {
    const auto found = opened_.find(ordinal);
    return found != opened_.end() ? std::optional(found->second) : std::nullopt;
  };
  {
    std::lock_guard lock(mutex_);
    if (const auto opened = known(); opened) return *opened;
  }
  nccl::Api* const api = ranks_ > 1 ? nccl() : nullptr;  // loads it: others are not to wait for that
  std::lock_guard lock(mutex_);
  if (const auto opened = known(); opened) return *opened;
  const SignalsBlocked blocked;  // for CUDA's threads
  ASSIGN_OR_RETURN(std::shared_ptr<device::Gpu> gpu, open_(ordinal));
  OpenedGpu opened{
      .gpu = gpu, .rings = std::make_shared<staged::Rings>(gpu, arena_, sizes_), .memory = gpu, .nccl_memory = nullptr};
  if (api != nullptr) {
    opened.nccl_memory = nccl::MakeMemory(*api, gpu, registered_from_);
    opened.memory = nccl::AllocatorOf(opened.nccl_memory);
  }
  return opened_[ordinal] = opened;
}

std::shared_ptr<void> Gpus::TakeTurnOfGraphs(int ordinal) {
  std::lock_guard lock(mutex_);
  std::weak_ptr<void>& turn = graph_turns_[ordinal];
  if (!turn.expired()) return nullptr;
  auto taken = std::make_shared<int>(ordinal);
  turn = taken;
  return taken;
}

bool Gpus::IsNews(const std::string& text) {
  std::lock_guard lock(told_mutex_);
  return told_.insert(text).second;
}

nccl::Api* Gpus::nccl() {
  if (!by_cuda_) return nccl_;
  const auto api = nccl::LoadApi();
  return api.ok() ? *api : nullptr;
}

}  // namespace gyre::internal
