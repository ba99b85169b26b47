// GpuAllocator: where memory on one GPU comes from: the GPU itself, or a library that reaches its own memory sooner.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace gyre::device {

// Thread-safe.
class GpuAllocator {
 public:
  virtual ~GpuAllocator() = default;

  // Aligned to 256 bytes. kResourceExhausted if there is not enough.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;

  // Waits for what is queued on the GPU, whatever that uses.
  virtual void Free(void* memory) = 0;
};

}  // namespace gyre::device
