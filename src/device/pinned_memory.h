// PinnedMemory: host memory that copies to and from a GPU run from at full speed, in whole pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device {

// What Gpu::Pin's memory is a multiple of: 4096 on most machines, 64 KiB on some.
int64_t PageSize();

struct Unpin {
  std::shared_ptr<Gpu> gpu{};
  void operator()(std::byte* memory) const;
};

// Once no copy uses it, it may go. Who lets go of it (release) while the GPU still has it, leaves it allocated and
// pinned until the process ends.
using PinnedMemory = std::unique_ptr<std::byte, Unpin>;

// `bytes` or more, aligned to a page. kResourceExhausted, or the GPU's errors.
absl::StatusOr<PinnedMemory> AllocatePinned(std::shared_ptr<Gpu> gpu, int64_t bytes);

}  // namespace gyre::device
