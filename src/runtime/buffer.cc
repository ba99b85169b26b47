#include <utility>

#include "gyre/arena.h"
#include "transport/shm/arena.h"

namespace gyre {

Buffer::Buffer(std::shared_ptr<internal::Arena> arena, std::byte* data, int64_t bytes)
    : arena_(std::move(arena)), data_(data), bytes_(bytes) {}

Buffer::~Buffer() {
  if (arena_ != nullptr) arena_->Free(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : arena_(std::move(other.arena_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace gyre
