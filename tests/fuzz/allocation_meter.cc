#include "allocation_meter.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace gyre::fuzz {

namespace {

thread_local int64_t live = 0;
thread_local int64_t most = 0;

void* Allocate(size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  live += static_cast<int64_t>(malloc_usable_size(memory));
  most = std::max(most, live);
  return memory;
}

void Free(void* memory) {
  if (memory == nullptr) return;
  live -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

AllocationMeter::AllocationMeter() {
  live = 0;
  most = 0;
}

int64_t AllocationMeter::peak() const {
  return most;
}

}  // namespace gyre::fuzz

void* operator new(size_t size) {
  return gyre::fuzz::Allocate(size);
}
void* operator new[](size_t size) {
  return gyre::fuzz::Allocate(size);
}
void operator delete(void* memory) noexcept {
  gyre::fuzz::Free(memory);
}
void operator delete[](void* memory) noexcept {
  gyre::fuzz::Free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  gyre::fuzz::Free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  gyre::fuzz::Free(memory);
}
