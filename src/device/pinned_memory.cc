#include "device/pinned_memory.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre::device {

namespace {

std::align_val_t Alignment() {
  return std::align_val_t{static_cast<size_t>(PageSize())};
}

}  // namespace

int64_t PageSize() {
  return sysconf(_SC_PAGESIZE);
}

void Unpin::operator()(std::byte* memory) const {
  gpu->Unpin(memory);
  ::operator delete(memory, Alignment());
}

absl::StatusOr<PinnedMemory> AllocatePinned(std::shared_ptr<Gpu> gpu, int64_t bytes) {
  const int64_t page = PageSize(), whole = (std::max<int64_t>(bytes, 1) + page - 1) / page * page;
  auto* const memory = static_cast<std::byte*>(::operator new(static_cast<size_t>(whole), Alignment(), std::nothrow));
  if (memory == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no ", whole, " bytes of host memory"));
  const absl::Status pinned = gpu->Pin(memory, whole);
  if (pinned.ok()) return PinnedMemory(memory, Unpin{std::move(gpu)});
  ::operator delete(memory, Alignment());
  return pinned;
}

}  // namespace gyre::device
