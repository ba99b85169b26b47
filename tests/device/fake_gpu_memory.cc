// Memory of the fake GPU, and of the host's that it has pinned.
#include <new>
#include <thread>

#include "device/fake_gpu.h"
#include "gtest/gtest.h"
#include "gyre/status_macros.h"

namespace gyre::device {

absl::StatusOr<void*> FakeGpu::Allocate(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (allocations_before_failure_-- <= 0) RETURN_IF_ERROR(allocate_failure_);
  void* const memory = ::operator new (static_cast<size_t>(bytes), std::align_val_t{256});
  allocations_.insert(memory);
  return memory;
}

void FakeGpu::Free(void* memory) {
  EXPECT_FALSE(sharing_.IsOpen(memory)) << "memory is freed that others have open";
  std::unique_lock lock(mutex_);
  EXPECT_FALSE(queues_->stalled && Busy() && memory != nullptr) << "freeing waits for a GPU that hangs";
  Await(lock, [this] { return Busy(); });
  queues_->waited.insert(std::this_thread::get_id());
  if (allocations_.erase(memory) == 1) ::operator delete (memory, std::align_val_t{256});
}

void FakeGpu::FreeAtOnce(void* memory) {
  std::lock_guard lock(mutex_);
  const bool waited = queues_->waited.erase(std::this_thread::get_id()) > 0;
  EXPECT_TRUE(waited || !Busy()) << "memory is freed without a wait, which the GPU may be at work on";
  if (allocations_.erase(memory) == 1) ::operator delete (memory, std::align_val_t{256});
}

absl::Status FakeGpu::Pin(void* memory, int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (reinterpret_cast<uintptr_t>(memory) % 4096 != 0 || bytes % 4096 != 0) {
    return absl::InvalidArgumentError("what is pinned must be pages");
  }
  RETURN_IF_ERROR(pin_failure_);
  if (!pinned_.emplace(memory, bytes).second) return absl::InternalError("pinned twice");
  return absl::OkStatus();
}

void FakeGpu::Unpin(void* memory) {
  std::lock_guard lock(mutex_);
  pinned_.erase(memory);
}

}  // namespace gyre::device
