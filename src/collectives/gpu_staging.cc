#include "collectives/gpu_staging.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "device/pinned_memory.h"
#include "gyre/status_macros.h"

namespace gyre::internal::staged {

namespace {

constexpr std::chrono::seconds kLongestRest{2};  // that the end of all rings waits for the GPU

int64_t Pages(int64_t bytes) {
  const int64_t page = device::PageSize();
  return (bytes + page - 1) / page * page;
}

}  // namespace

Rings::Rings(std::shared_ptr<device::Gpu> gpu, std::shared_ptr<Arena> arena, const Sizes& sizes)
    : gpu_(std::move(gpu)), arena_(std::move(arena)), sizes_(sizes) {}

// Operations end before their last copies, and so does the last one. What a GPU that hangs still has stays pinned, and
// therefore mapped, for as long as the process lives.
Rings::~Rings() {
  for (auto& ring : std::exchange(idle_, {})) Give(std::move(ring), true);
  const auto end = std::chrono::steady_clock::now() + kLongestRest;
  for (;;) {
    for (const auto& ring : TakeRested()) Destroy(*ring);
    if (spoilt_.empty() || std::chrono::steady_clock::now() >= end) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (spoilt_.empty()) {
    for (const Area& area : spare_areas_) gpu_->Free(area.memory);
    return;
  }
  for (auto& ring : spoilt_) (void)ring.release();  // NOLINT(bugprone-unused-return-value): the GPU still has it
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the GPU still has its pages as well
  new (std::nothrow) std::shared_ptr<Arena>(arena_);
}

absl::StatusOr<std::unique_ptr<Ring>> Rings::Take(int64_t slot_bytes) {
  for (const auto& ring : TakeRested()) Destroy(*ring);
  const bool ordinary = slot_bytes == sizes_.slot_bytes;
  std::unique_ptr<Ring> outgrown;
  {
    std::lock_guard lock(mutex_);
    const auto fits = std::ranges::find_if(idle_, [&](const auto& ring) {
      return ordinary ? ring->slot_bytes == slot_bytes : ring->slots.size() == 1 && ring->slot_bytes >= slot_bytes;
    });
    if (fits != idle_.end()) {
      std::unique_ptr<Ring> ring = std::move(*fits);
      idle_.erase(fits);
      return ring;
    }
    const auto smaller = std::ranges::find_if(idle_, [](const auto& ring) { return ring->slots.size() == 1; });
    if (!ordinary && smaller != idle_.end()) {
      outgrown = std::move(*smaller);
      idle_.erase(smaller);
    }
  }
  if (outgrown != nullptr) Give(std::move(outgrown), true);  // it may be about to be copied out of
  return ordinary ? Make(slot_bytes, sizes_.slots) : Make(Pages(slot_bytes), 1);
}

absl::StatusOr<std::unique_ptr<Ring>> Rings::Make(int64_t slot_bytes, int slots) {
  auto ring = std::make_unique<Ring>();
  ring->slot_bytes = slot_bytes;
  if (absl::Status filled = Fill(*ring, slots); !filled.ok()) {
    Destroy(*ring);
    return filled;
  }
  return ring;
}

absl::Status Rings::Fill(Ring& ring, int slots) {
  const int64_t bytes = Pages(ring.slot_bytes * slots);
  ASSIGN_OR_RETURN(ring.piece, arena_->Allocate(bytes + device::PageSize()));
  const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(ring.piece));
  std::byte* const memory = ring.piece + (Pages(at) - at);
  RETURN_IF_ERROR(gpu_->Pin(memory, bytes));
  ring.memory = memory;
  ASSIGN_OR_RETURN(ring.out, gpu_->CreateStream());
  ASSIGN_OR_RETURN(ring.back, gpu_->CreateStream());
  for (int number = 0; number < slots; ++number) {
    Ring::Slot& slot = ring.slots.emplace_back();
    slot.memory = memory + number * ring.slot_bytes;
    ASSIGN_OR_RETURN(slot.copied_out, gpu_->CreateEvent());
    ASSIGN_OR_RETURN(slot.copied_back, gpu_->CreateEvent());
  }
  return absl::OkStatus();
}

absl::Status Rings::HaveWithin(Ring& ring) {
  if (ring.within != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(ring.within, gpu_->CreateStream());
  return absl::OkStatus();
}

// Twice as much each time: all that is kept together is no more than the last.
absl::StatusOr<std::byte*> Rings::AreaOf(Ring& ring, int64_t bytes) {
  const int64_t current = ring.areas.empty() ? 0 : ring.areas.back().bytes;
  if (bytes > current) {
    Area area = TakeSpare(bytes);
    if (area.memory == nullptr) {
      area.bytes = std::max(bytes, 2 * current);
      ASSIGN_OR_RETURN(area.memory, gpu_->Allocate(area.bytes));
    }
    ring.areas.push_back(area);
  }
  return static_cast<std::byte*>(ring.areas.back().memory);
}

// Of so many bytes at least; null: there is none.
Area Rings::TakeSpare(int64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto fits = std::ranges::find_if(spare_areas_, [bytes](const Area& area) { return area.bytes >= bytes; });
  if (fits == spare_areas_.end()) return {};
  const Area area = *fits;
  spare_areas_.erase(fits);
  return area;
}

void Rings::Give(std::unique_ptr<Ring> ring, bool spoilt) {
  if (spoilt) MarkEnd(*ring);
  std::lock_guard lock(mutex_);
  (spoilt ? spoilt_ : idle_).push_back(std::move(ring));
}

// On all streams: the last of them waits for the one that has no event of its own.
void Rings::MarkEnd(Ring& ring) {
  const Ring::Slot& first = ring.slots[0];
  if (ring.within != nullptr && gpu_->Record(first.copied_out, ring.within).ok()) {
    (void)gpu_->Wait(ring.back, first.copied_out);
  }
  (void)gpu_->Record(first.copied_out, ring.out);
  (void)gpu_->Record(first.copied_back, ring.back);
}

// Of the spoilt ones those that the GPU has done with.
std::vector<std::unique_ptr<Ring>> Rings::TakeRested() {
  std::vector<std::unique_ptr<Ring>> rested;
  std::lock_guard lock(mutex_);
  for (auto& ring : spoilt_) {
    const auto out = gpu_->Done(ring->slots[0].copied_out), back = gpu_->Done(ring->slots[0].copied_back);
    if (out.ok() && *out && back.ok() && *back) rested.push_back(std::move(ring));
  }
  std::erase(spoilt_, nullptr);
  return rested;
}

// Also what was made of one in part. Waits for the copies that are still under way.
void Rings::Destroy(Ring& ring) {
  const std::array<device::Gpu::Stream, 3> streams = {ring.out, ring.back, ring.within};
  for (const device::Gpu::Stream stream : streams) {
    if (stream != nullptr) (void)gpu_->Synchronize(stream);
  }
  for (const Ring::Slot& slot : ring.slots) {
    if (slot.copied_out != nullptr) gpu_->DestroyEvent(slot.copied_out);
    if (slot.copied_back != nullptr) gpu_->DestroyEvent(slot.copied_back);
  }
  for (const device::Gpu::Stream stream : streams) {
    if (stream != nullptr) gpu_->DestroyStream(stream);
  }
  if (ring.memory != nullptr) gpu_->Unpin(ring.memory);
  if (ring.piece != nullptr) arena_->Free(ring.piece);
  std::lock_guard lock(mutex_);
  spare_areas_.insert(spare_areas_.end(), ring.areas.begin(), ring.areas.end());
}

}  // namespace gyre::internal::staged
