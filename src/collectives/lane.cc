#include "collectives/lane.h"

#include <utility>
#include <vector>

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

// Ends what is queued behind the first operation and has cause to end. REQUIRES: this thread drives.
void Lane::CheckWaiting(TimePoint now) {
  std::vector<std::shared_ptr<Pollable>> ended;
  {
    std::lock_guard lock(mutex_);
    for (auto it = queue_.begin() + 1; it != queue_.end();) {
      if (!(*it)->Check(now)) {
        ++it;
        continue;
      }
      ended.push_back(std::move(*it));
      it = queue_.erase(it);
      state_.fetch_sub(kQueued, std::memory_order_release);
    }
  }
  for (const auto& operation : ended) operation->MarkDone();
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
    if (progress == shm::Progress::kNone && now != nullptr) CheckWaiting(*now);
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
