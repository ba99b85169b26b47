#include <utility>

#include "gyre/arena.h"
#include "transport/shm/arena.h"

namespace gyre {

Buffer::Buffer(std::shared_ptr<internal::Arena> arena, std::byte* data, int64_t bytes)
    : arena_(std::move(arena)), data_(data), bytes_(bytes) {}

Buffer::Buffer(std::shared_ptr<void> on_gpu, int64_t bytes, const Device& device)
    : on_gpu_(std::move(on_gpu)), device_(device), data_(static_cast<std::byte*>(on_gpu_.get())), bytes_(bytes) {}

Buffer::~Buffer() {
  if (arena_ != nullptr) arena_->Free(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : arena_(std::move(other.arena_)),
      on_gpu_(std::move(other.on_gpu_)),
      device_(std::exchange(other.device_, Device())),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(on_gpu_, other.on_gpu_);
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace gyre
