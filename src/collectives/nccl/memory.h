// Memory: what tensors lie in where NCCL is: memory of NCCL's own, which communicators can register, so that NCCL need
// not copy it through buffers of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/nccl/api.h"
#include "collectives/nccl/connection.h"
#include "device/gpu.h"
#include "device/gpu_allocator.h"

namespace gyre::internal::nccl {

// Of one GPU. Thread-safe.
class Memory final : public device::GpuAllocator {
 public:
  // What is smaller than `least`, in bytes, or not to be had from NCCL, comes from the GPU.
  Memory(Api& api, std::shared_ptr<device::Gpu> gpu, int64_t least);
  ~Memory() override;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  absl::StatusOr<void*> Allocate(int64_t bytes) override;

  // When the GPU has done its work, communicators forget the memory; where that takes them more than
  // Connection::kPatience, all together, the memory stays the process's.
  void Free(void* memory) override;

  struct Piece {
    void* begin = nullptr;
    int64_t bytes = 0;
  };

  // Of NCCL's, that the byte lies in.
  std::optional<Piece> Find(const void* data) const;

  // May register pieces from now on, and is told before they go.
  void Attach(const std::shared_ptr<Connection>& connection);

 private:
  // NCCL does not say that it waits for work when it frees; what the GPU frees first comes behind all of that.
  struct Entry {
    int64_t bytes = 0;
    void* freed_first = nullptr;  // of the GPU's
  };

  Api& api_;
  const std::shared_ptr<device::Gpu> gpu_;
  const int64_t least_;
  mutable std::mutex mutex_;
  std::map<const void*, Entry> pieces_;                 // by begin; guarded by mutex_
  std::vector<std::weak_ptr<Connection>> connections_;  // likewise
};

}  // namespace gyre::internal::nccl
