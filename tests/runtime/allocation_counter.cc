// In a file of its own: where GCC sees new and delete side by side with their replacements, it takes free() for a
// mistake.
#include "runtime/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace gyre::support {

namespace {

std::atomic<int64_t> allocations{0};

void* Allocate(size_t size, size_t alignment) {
  allocations.fetch_add(1);
  void* const memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

int64_t AllocationCount() {
  return allocations.load();
}

}  // namespace gyre::support

void* operator new(size_t size) {
  return gyre::support::Allocate(size, alignof(std::max_align_t));
}
void* operator new[](size_t size) {
  return gyre::support::Allocate(size, alignof(std::max_align_t));
}
void* operator new(size_t size, std::align_val_t alignment) {
  return gyre::support::Allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
