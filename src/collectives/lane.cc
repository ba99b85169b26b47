#include "collectives/lane.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace gyre::internal {

bool Pollable::AddWaits(std::vector<pollfd>&) const {
  return false;
}

void Pollable::Tell() {
  observed_.failed = !status_.ok();
  observed_.end = std::chrono::steady_clock::now();
  observer_->Ended(observed_);
}

void Lane::Enqueue(std::shared_ptr<Pollable> operation) {
  std::lock_guard lock(mutex_);
  queue_.PushBack(std::move(operation));
  state_.fetch_add(kQueued, std::memory_order_release);
}

bool Lane::TryTakeQueued() {
  uint32_t state = state_.load();
  while (state >= kQueued && (state & kDriven) == 0) {
    if (state_.compare_exchange_weak(state, state | kDriven, std::memory_order_acquire)) return true;
  }
  return false;
}

// Ends what is queued from place `first` on and has cause to end. REQUIRES: this thread drives.
bool Lane::CheckFrom(size_t first, TimePoint now) {
  std::vector<std::shared_ptr<Pollable>> ended;
  {
    std::lock_guard lock(mutex_);
    for (size_t place = first; place < queue_.size();) {
      if (!queue_[place]->Check(now)) {
        ++place;
        continue;
      }
      ended.push_back(queue_[place]);
      queue_.Erase(place);
      state_.fetch_sub(kQueued, std::memory_order_release);
    }
  }
  for (const auto& operation : ended) operation->MarkDone();
  return !ended.empty();
}

bool Lane::AddWaits(std::vector<pollfd>& waits) {
  if (!TryTakeQueued()) return false;
  std::shared_ptr<Pollable> operation;
  {
    std::lock_guard lock(mutex_);
    operation = queue_[0];
  }
  const bool all = operation->AddWaits(waits);
  state_.fetch_sub(kDriven);
  return all;
}

TimePoint Lane::NextDeadline() {
  TimePoint next = TimePoint::max();
  std::lock_guard lock(mutex_);
  for (size_t place = 0; place < queue_.size(); ++place) next = std::min(next, queue_[place]->deadline());
  return next;
}

shm::Progress Lane::Drive(const TimePoint* now) {
  if (!TryTakeQueued()) return shm::Progress::kNone;
  std::shared_ptr<Pollable> operation;
  {
    std::lock_guard lock(mutex_);
    operation = queue_[0];
  }
  const shm::Progress progress = operation->Poll();
  if (progress != shm::Progress::kDone && (now == nullptr || !operation->Check(*now))) {
    const bool ended = now != nullptr && CheckFrom(1, *now);
    state_.fetch_sub(kDriven);
    return ended ? shm::Progress::kDone : progress;
  }
  {
    std::lock_guard lock(mutex_);
    queue_.PopFront();
  }
  state_.fetch_sub(kDriven + kQueued);
  operation->MarkDone();
  return shm::Progress::kDone;
}

}  // namespace gyre::internal
