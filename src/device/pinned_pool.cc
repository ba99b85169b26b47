#include "device/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/gpu_wait.h"

namespace gyre::device {

namespace {

constexpr uint64_t kPage = 4096;
constexpr std::align_val_t kAlignment{kPage};

}  // namespace

PinnedPool::~PinnedPool() {
  const auto deadline = std::chrono::steady_clock::now() + kLongestRest;
  for (std::unique_ptr<Piece>& piece : idle_) {
    const auto rests = AwaitEvent(*gpu_, piece->copied, deadline);
    if (rests.ok() && *rests) {
      Destroy(*piece);
    } else {
      (void)piece.release();  // NOLINT(bugprone-unused-return-value): the GPU still has it
    }
  }
}

// Null: there is none.
absl::StatusOr<PinnedPool::Piece*> PinnedPool::TakeIdle(int64_t bytes) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Piece>* best = nullptr;
  for (std::unique_ptr<Piece>& piece : idle_) {
    if (piece->bytes < bytes || (best != nullptr && (*best)->bytes <= piece->bytes)) continue;
    ASSIGN_OR_RETURN(const bool rests, gpu_->Done(piece->copied));
    if (rests) best = &piece;
  }
  if (best == nullptr) return nullptr;
  std::swap(*best, idle_.back());
  Piece* const taken = idle_.back().release();
  idle_.pop_back();
  return taken;
}

absl::StatusOr<PinnedPool::Piece*> PinnedPool::Take(int64_t bytes) {
  ASSIGN_OR_RETURN(Piece* const idle, TakeIdle(bytes));
  if (idle != nullptr) return idle;
  ASSIGN_OR_RETURN(std::unique_ptr<Piece> made, Make(bytes));
  return made.release();
}

absl::StatusOr<std::unique_ptr<PinnedPool::Piece>> PinnedPool::Make(int64_t bytes) {
  auto piece = std::make_unique<Piece>();
  piece->bytes = static_cast<int64_t>(std::bit_ceil(std::max(static_cast<uint64_t>(bytes), kPage)));
  piece->memory = static_cast<std::byte*>(::operator new(static_cast<size_t>(piece->bytes), kAlignment, std::nothrow));
  if (piece->memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no ", piece->bytes, " bytes of host memory"));
  }
  absl::Status pinned = gpu_->Pin(piece->memory, piece->bytes);
  if (!pinned.ok()) {
    ::operator delete(piece->memory, kAlignment);
    return pinned;
  }
  auto event = gpu_->CreateEvent();
  if (event.ok()) {
    piece->copied = *event;
    return piece;
  }
  Destroy(*piece);
  return event.status();
}

void PinnedPool::Destroy(const Piece& piece) {
  if (piece.copied != nullptr) gpu_->DestroyEvent(piece.copied);
  gpu_->Unpin(piece.memory);
  ::operator delete(piece.memory, kAlignment);
}

void PinnedPool::Give(Piece* piece) {
  std::lock_guard lock(mutex_);
  idle_.emplace_back(piece);
}

}  // namespace gyre::device
