// HandOver: for what threads use one at a time, and any thread may discard without waiting for a use that is under way:
// whoever uses it discards it then.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

namespace gyre::device {

// Thread-safe.
class HandOver {
 public:
  // `discard`: called by one thread at a time, never during a use, once or more often.
  explicit HandOver(std::function<void()> discard) : discard_(std::move(discard)) {}

  // Waits for a use that is under way. False: it was discarded, and is not used.
  template <typename Call>
  bool Use(const Call& use) {
    std::lock_guard lock(mutex_);
    const bool usable = (state_.fetch_or(kInUse) & kDiscarded) == 0;
    if (usable) use();
    if ((state_.fetch_and(~kInUse) & kDiscarded) != 0) discard_();
    return usable;
  }

  // Is discarded when this returns, or a use that is under way does. Waits for no use.
  void Discard() {
    if ((state_.fetch_or(kDiscarded) & kInUse) != 0) return;
    std::lock_guard lock(mutex_);  // of a use that has just ended, or finds that it is none any more
    discard_();
  }

 private:
  static constexpr unsigned kInUse = 1, kDiscarded = 2;

  const std::function<void()> discard_;
  std::atomic<unsigned> state_{0};
  std::mutex mutex_;  // held by uses
};

}  // namespace gyre::device
