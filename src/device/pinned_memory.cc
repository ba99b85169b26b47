#include "device/pinned_memory.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre::device {

namespace {

constexpr int64_t kPage = 4096;
constexpr std::align_val_t kAlignment{kPage};

}  // namespace

void Unpin::operator()(std::byte* memory) const {
  gpu->Unpin(memory);
  ::operator delete(memory, kAlignment);
}

absl::StatusOr<PinnedMemory> AllocatePinned(std::shared_ptr<Gpu> gpu, int64_t bytes) {
  const int64_t whole = (std::max<int64_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  auto* const memory = static_cast<std::byte*>(::operator new(static_cast<size_t>(whole), kAlignment, std::nothrow));
  if (memory == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no ", whole, " bytes of host memory"));
  const absl::Status pinned = gpu->Pin(memory, whole);
  if (pinned.ok()) return PinnedMemory(memory, Unpin{std::move(gpu)});
  ::operator delete(memory, kAlignment);
  return pinned;
}

}  // namespace gyre::device
