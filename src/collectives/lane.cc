#include "collectives/lane.h"

#include <utility>

namespace gyre::internal {

bool Lane::TryTakeIdle() {
  std::lock_guard lock(mutex_);
  if (driven_ || !queue_.empty()) return false;
  driven_ = true;
  return true;
}

bool Lane::Release() {
  std::lock_guard lock(mutex_);
  driven_ = false;
  return !queue_.empty();
}

void Lane::Enqueue(std::shared_ptr<Pollable> operation) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(operation));
}

bool Lane::empty() const {
  std::lock_guard lock(mutex_);
  return queue_.empty();
}

shm::Progress Lane::Drive(const TimePoint* now) {
  std::shared_ptr<Pollable> operation;
  {
    std::lock_guard lock(mutex_);
    if (driven_ || queue_.empty()) return shm::Progress::kNone;
    driven_ = true;
    operation = queue_.front();
  }
  shm::Progress progress = operation->Poll();
  if (progress == shm::Progress::kNone && now != nullptr && operation->Check(*now)) progress = shm::Progress::kDone;
  {
    std::lock_guard lock(mutex_);
    driven_ = false;
    if (progress == shm::Progress::kDone) queue_.pop_front();
  }
  if (progress == shm::Progress::kDone) operation->MarkDone();
  return progress;
}

}  // namespace gyre::internal
