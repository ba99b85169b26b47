#include "device/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/status.h"
#include "device/gpu_wait.h"

namespace gyre::device {

namespace {

constexpr uint64_t kLeastBytes = 4096;

}  // namespace

PinnedPool::~PinnedPool() {
  const auto deadline = std::chrono::steady_clock::now() + kLongestRest;
  for (std::unique_ptr<Piece>& piece : idle_) {
    const auto rests = AwaitEvent(*gpu_, piece->copied, deadline);
    if (rests.ok() && *rests) {
      gpu_->DestroyEvent(piece->copied);
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
  piece->bytes = static_cast<int64_t>(std::bit_ceil(std::max(static_cast<uint64_t>(bytes), kLeastBytes)));
  ASSIGN_OR_RETURN(piece->memory, AllocatePinned(gpu_, piece->bytes));
  ASSIGN_OR_RETURN(piece->copied, gpu_->CreateEvent());
  return piece;
}

absl::Status PinnedPool::Copy(Piece* piece, void* to, const void* from, int64_t bytes, Gpu::Stream stream) {
  absl::Status copied = gpu_->Record(piece->copied, stream);  // says whether the stream is being captured
  if (copied.ok()) copied = gpu_->Copy(to, from, bytes, stream);
  if (copied.ok()) return gpu_->Record(piece->copied, stream);
  Give(piece);
  return copied;
}

void PinnedPool::Give(Piece* piece) {
  std::lock_guard lock(mutex_);
  idle_.emplace_back(piece);
}

}  // namespace gyre::device
