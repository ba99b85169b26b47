// Floats that are 0 at first, in huge pages where the system has them: a pass over a large tensor's state then misses
// the TLB seldom.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace gyre::compression {

class LargeBuffer {
 public:
  LargeBuffer() = default;
  explicit LargeBuffer(int64_t count) : size_(static_cast<size_t>(count)) {
    constexpr size_t kHugePage = size_t{2} << 20, kLine = 64;
    const size_t alignment = size_ * sizeof(float) >= kHugePage ? kHugePage : kLine;
    const size_t bytes = (size_ * sizeof(float) + alignment - 1) / alignment * alignment;
    if (bytes == 0) return;
    data_.reset(static_cast<float*>(std::aligned_alloc(alignment, bytes)));
    if (data_ == nullptr) throw std::bad_alloc();
    if (alignment == kHugePage) madvise(data_.get(), bytes, MADV_HUGEPAGE);  // advice: no matter if it is not taken
    std::memset(data_.get(), 0, bytes);
  }

  float* data() { return data_.get(); }
  std::span<float> span() { return {data_.get(), size_}; }
  std::span<const float> span() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> data_;
  size_t size_ = 0;
};

}  // namespace gyre::compression
