// Lane: the operations that must run one after the other because they meet in the same place.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "collectives/observer.h"
#include "transport/shm/waiter.h"

namespace gyre::internal {

// Something that is advanced by polling until it has ended. Poll and Check are called by one thread at a time: whoever
// drives its lane.
class Pollable {
 public:
  virtual ~Pollable() = default;

  // Advances as far as that goes without waiting. kDone: it has ended, and status() is final.
  virtual shm::Progress Poll() = 0;

  // Ends it with an error if there is cause: the deadline has passed, a peer is lost, the runtime was shut down.
  // True if it has ended. Before it has begun it is called only if its deadline has passed.
  virtual bool Check(TimePoint now) = 0;

  // Its time runs from `now` on, also while it is queued.
  virtual void StartClock(TimePoint now) = 0;

  // Adds what poll(2) could wait for on its behalf. False: it waits for something else as well, which descriptors do
  // not tell. Called by its lane's driver.
  virtual bool AddWaits(std::vector<pollfd>& waits) const;

  // When its time is up. Thread-safe. Does not change before the operation has begun. REQUIRES: its clock was started,
  // or it was checked.
  virtual TimePoint deadline() const = 0;

  // REQUIRES: Poll returned kDone, Check returned true, or done().
  const absl::Status& status() const { return status_; }

  // For the threads that wait for it: set by the driver when it lets go of the object, its last touch.
  bool done() const { return done_.load(std::memory_order_acquire); }
  void MarkDone() {
    if (observer_ != nullptr) Tell();
    done_.store(true, std::memory_order_seq_cst);
  }

  // `observer`, which outlives the object's end, is told of that; `observed`: what is known now. REQUIRES: not queued.
  void Observe(CallObserver& observer, const Observed& observed) {
    observer_ = &observer;
    observed_ = observed;
  }

 protected:
  // For an object that is used again. REQUIRES: done(), or it was never queued; nobody waits for it.
  void Restart() {
    status_ = absl::OkStatus();
    done_.store(false, std::memory_order_release);
  }

  absl::Status status_;

 private:
  void Tell();

  std::atomic<bool> done_{false};
  CallObserver* observer_ = nullptr;
  Observed observed_;
};

// First in, first out. Memory that it once had it keeps: what is queued again and again costs no allocation.
class OperationQueue {
 public:
  size_t size() const { return size_; }
  std::shared_ptr<Pollable>& operator[](size_t place) { return ring_[(first_ + place) % ring_.size()]; }

  void PushBack(std::shared_ptr<Pollable> operation) {
    if (size_ == ring_.size()) Grow();
    (*this)[size_++] = std::move(operation);
  }
  void PopFront() {
    (*this)[0].reset();
    first_ = (first_ + 1) % ring_.size();
    --size_;
  }
  // REQUIRES: what lies behind the first `size` was moved away.
  void Truncate(size_t size) { size_ = size; }

 private:
  void Grow() {
    std::vector<std::shared_ptr<Pollable>> larger(std::max<size_t>(4, 2 * ring_.size()));
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    ring_.swap(larger);
    first_ = 0;
  }

  std::vector<std::shared_ptr<Pollable>> ring_;
  size_t first_ = 0, size_ = 0;
};

// Thread-safe. A thread that drives the lane has it to itself until it lets go.
class Lane {
 public:
  // Takes the lane for an operation that need not queue: true if nothing was queued and nobody was driving. Cheap:
  // every blocking call does it.
  bool TryTakeIdle() {
    uint32_t idle = 0;
    return state_.compare_exchange_strong(idle, kDriven, std::memory_order_acquire);
  }

  // Lets go. True if operations are queued.
  bool Release() { return state_.fetch_sub(kDriven, std::memory_order_release) != kDriven; }

  // Appends behind all that is queued. REQUIRES: the operation's clock runs.
  void Enqueue(std::shared_ptr<Pollable> operation);

  // Advances the first operation of the queue unless another thread drives, and takes it off when it ended. `now`:
  // check it for deadline and losses as well, and end those behind it whose deadline has passed. They find all other
  // causes when their turn comes, so that a look costs the same however many are queued. kDone: an operation has ended.
  shm::Progress Drive(const TimePoint* now);

  // Ends queued operations whose deadline has passed; whether there was any. REQUIRES: TryTakeIdle gave this thread the
  // lane.
  bool CheckQueued(TimePoint now) { return EndLate(0, now); }

  // The first queued operation's Pollable::AddWaits; nothing where another thread drives.
  bool AddWaits(std::vector<pollfd>& waits);

  // No queued operation is late before this. The end of time if none is queued.
  TimePoint NextDeadline();

  bool empty() const { return state_.load(std::memory_order_acquire) < kQueued; }  // nothing is queued

 private:
  static constexpr uint32_t kDriven = 1, kQueued = 2;  // one kQueued for each operation in the queue

  bool TryTakeQueued();
  bool EndLate(size_t first, TimePoint now);
  TimePoint earliest() const { return TimePoint(Duration(earliest_.load())); }
  void SetEarliest(TimePoint at) { earliest_.store(at.time_since_epoch().count()); }

  std::atomic<uint32_t> state_{0};
  std::mutex mutex_;
  OperationQueue queue_;  // guarded by mutex_

  // No queued operation that has not begun has an earlier deadline. It may be the deadline of one that has ended since.
  // Written with mutex_ held.
  std::atomic<Duration::rep> earliest_{TimePoint::max().time_since_epoch().count()};
};

}  // namespace gyre::internal
