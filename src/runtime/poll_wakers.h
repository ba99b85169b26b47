// PollWakers: wakes this process's threads out of poll(2), where no doorbell reaches them.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

namespace gyre::internal {

// Thread-safe. A descriptor for each thread that has slept at the same time as others.
class PollWakers {
 public:
  PollWakers() {
    taken_.reserve(kRoom);
    free_.reserve(kRoom);
  }
  ~PollWakers();
  PollWakers(const PollWakers&) = delete;
  PollWakers& operator=(const PollWakers&) = delete;

  // A descriptor that is readable from the next WakeAll on; -1 where the process has none left. Look for what is
  // awaited after this and before sleeping.
  int Take();

  // Awake again. `descriptor`: what Take returned.
  void Give(int descriptor);

  // Costs one load where nobody sleeps. REQUIRES: what is awaited was changed with a sequentially consistent store.
  void WakeAll() {
    if (sleepers_.load() != 0) WriteAll();
  }

 private:
  static constexpr size_t kRoom = 8;  // for more, they grow

  void WriteAll();

  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::vector<int> taken_, free_;  // guarded by mutex_
};

}  // namespace gyre::internal
