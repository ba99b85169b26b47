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
  SetEarliest(std::min(earliest(), operation->deadline()));
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

// Ends the operations from place `first` on whose deadline has passed. REQUIRES: this thread drives, and those before
// `first` have begun.
bool Lane::EndLate(size_t first, TimePoint now) {
  if (now < earliest()) return false;
  std::vector<std::shared_ptr<Pollable>> ended;
  {
    std::lock_guard lock(mutex_);
    TimePoint next = TimePoint::max();
    size_t kept = first;
    for (size_t place = first; place < queue_.size(); ++place) {
      std::shared_ptr<Pollable> operation = std::move(queue_[place]);
      if (operation->deadline() <= now && operation->Check(now)) {
        ended.push_back(std::move(operation));
        continue;
      }
      next = std::min(next, operation->deadline());
      queue_[kept++] = std::move(operation);
    }
    if (!ended.empty()) queue_.Truncate(kept);
    SetEarliest(next);
    state_.fetch_sub(kQueued * static_cast<uint32_t>(ended.size()), std::memory_order_release);
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
  std::lock_guard lock(mutex_);
  if (queue_.size() == 0) return TimePoint::max();
  return std::min(queue_[0]->deadline(), earliest());
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
    const bool ended = now != nullptr && EndLate(1, *now);
    state_.fetch_sub(kDriven);
    return ended ? shm::Progress::kDone : progress;
  }
  {
    std::lock_guard lock(mutex_);
    queue_.PopFront();
    if (queue_.size() == 0) SetEarliest(TimePoint::max());
  }
  state_.fetch_sub(kDriven + kQueued);
  operation->MarkDone();
  return shm::Progress::kDone;
}

}  // namespace gyre::internal
