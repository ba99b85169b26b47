#include "collectives/lane.h"

#include <utility>

namespace gyre::internal {

void Lane::Enqueue(std::shared_ptr<Pollable> operation) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(operation));
  state_.fetch_add(kQueued, std::memory_order_release);
}

bool Lane::TryTakeQueued() {
  uint32_t state = state_.load(std::memory_order_relaxed);
  while (state >= kQueued && (state & kDriven) == 0) {
    if (state_.compare_exchange_weak(state, state | kDriven, std::memory_order_acquire)) return true;
  }
  return false;
}

shm::Progress Lane::Drive(const TimePoint* now) {
  if (!TryTakeQueued()) return shm::Progress::kNone;
  std::shared_ptr<Pollable> operation;
  {
    std::lock_guard lock(mutex_);
    operation = queue_.front();
  }
  shm::Progress progress = operation->Poll();
  if (progress == shm::Progress::kNone && now != nullptr && operation->Check(*now)) progress = shm::Progress::kDone;
  if (progress != shm::Progress::kDone) {
    state_.fetch_sub(kDriven, std::memory_order_release);
    return progress;
  }
  {
    std::lock_guard lock(mutex_);
    queue_.pop_front();
  }
  state_.fetch_sub(kDriven + kQueued, std::memory_order_release);
  operation->MarkDone();
  return progress;
}

}  // namespace gyre::internal
