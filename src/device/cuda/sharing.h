// Sharing by CUDA's interprocess handles.
#pragma once

#include <mutex>
#include <set>

#include "device/cuda_context/current.h"
#include "device/gpu_sharing.h"

namespace gyre::device::cuda {

// A handle of this very process is opened as what it is: CUDA does not open those of its own process.
class CudaSharing final : public GpuSharing {
 public:
  explicit CudaSharing(const PrimaryContext& primary) : primary_(primary) {}

  absl::StatusOr<Handle> ExportMemory(void* memory) override;
  absl::StatusOr<void*> OpenMemory(const Handle& handle) override;
  void CloseMemory(void* opened) override;
  absl::StatusOr<Gpu::Event> CreateEvent() override;
  absl::StatusOr<Handle> ExportEvent(Gpu::Event event) override;
  absl::StatusOr<Gpu::Event> OpenEvent(const Handle& handle) override;
  void CloseEvent(Gpu::Event opened) override;

 private:
  const PrimaryContext primary_;
  std::mutex mutex_;
  std::multiset<void*> own_;  // opened, of this process; guarded by mutex_
};

}  // namespace gyre::device::cuda
