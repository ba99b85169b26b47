// Buffer: memory from a runtime's arena, which the ranks of a host share, so that allreduces of it need no copies; or
// memory on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gyre/export.h"
#include "gyre/tensor.h"

namespace gyre {

namespace internal {
class Arena;
}  // namespace internal

// Owns a piece of the arena, or of a GPU's memory; gives it back when destroyed, which may be after the runtime's end
// (on a GPU that waits for work that uses it). Aligned to 128 bytes, on a GPU to 256; of the arena zero when first
// allocated (memory that was used before keeps its old bytes), on a GPU undefined. Movable, not copyable. Not
// thread-safe as an object; the memory is ordinary memory. Do not free a buffer while an operation on it is pending. A
// buffer whose allreduce ended in an error other than kInvalidArgument is never handed out again: a late rank may still
// write to it.
class GYRE_EXPORT Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Where it is, and the stream in whose order it is to be used.
  const Device& device() const { return device_; }

  // The memory as elements of T; as many as fit. On a GPU they are not the host's to touch.
  template <typename T>
  std::span<T> As() const {
    return {reinterpret_cast<T*>(data_), static_cast<size_t>(bytes_) / sizeof(T)};
  }

 private:
  friend class Runtime;
  Buffer(std::shared_ptr<internal::Arena> arena, std::byte* data, int64_t bytes);
  Buffer(std::shared_ptr<void> on_gpu, int64_t bytes, const Device& device);

  std::shared_ptr<internal::Arena> arena_;
  std::shared_ptr<void> on_gpu_;
  Device device_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace gyre
