// Progress: who carries operations forward. A blocking call does its own work on its own thread; asynchronous ones are
// advanced by every thread that waits for one, or else by one background thread, which sleeps while there are none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/process_mark.h"
#include "collectives/lane.h"
#include "runtime/poll_wakers.h"
#include "transport/shm/node.h"
#include "transport/shm/waiter.h"

namespace gyre::internal {

// Thread-safe.
class Progress {
 public:
  Progress(std::shared_ptr<shm::Node> node, shm::WaitPolicy policy);
  ~Progress();

  // Runs the operation to its end and returns its status: on this thread if the lane is idle, otherwise after all that
  // is queued there. `owner` keeps the lane alive.
  absl::Status Run(const std::shared_ptr<void>& owner, Lane& lane, Pollable& operation);

  // Queues the operation and returns at once.
  void Start(const std::shared_ptr<void>& owner, Lane& lane, std::shared_ptr<Pollable> operation);

  // What is queued in the lane can go on: drives it once on this thread; true if it moved. Otherwise another thread may
  // drive it: sees to it that who sleeps looks again.
  bool Nudge(Lane& lane);

  // What a thread of this process may be asleep for has changed, by a sequentially consistent store: all look again.
  void Ring();

  // Returns when the operation is done; advances whatever is queued meanwhile.
  void Wait(Pollable& operation);

  // The same, until reached() says so: asked after each look. Whoever makes it true rings.
  void WaitUntil(absl::FunctionRef<bool()> reached);

  // The process that it works in, rather than a child of it.
  const ProcessMark& process() const { return node_->process(); }

  // After the node was closed: ends all that is queued and stops the thread. Idempotent.
  void Stop();

 private:
  void Queue(const std::shared_ptr<void>& owner, Lane& lane, std::shared_ptr<Pollable> operation);
  void WakeBackground();
  using Lanes = absl::InlinedVector<std::shared_ptr<Lane>, 8>;  // a look at a few lanes allocates nothing
  Lanes ActiveLanes();
  shm::Progress DriveAll(const TimePoint* now);
  void OnEnded();
  TimePoint NextDeadline();
  bool AddWaits(std::vector<pollfd>& waits);
  std::vector<pollfd> TakeWaits();
  void GiveWaits(std::vector<pollfd> waits);
  void Sleep(uint32_t rings, std::chrono::nanoseconds at_most, std::vector<pollfd>& waits, bool nothing_else);
  template <typename Poll, typename Check>
  void AwaitAll(const shm::WaitPolicy& policy, const Poll& poll, const Check& check);
  void Background();
  bool MayRest() const;
  shm::Doorbell& doorbell() const { return node_->block(node_->rank()).doorbell; }

  // What there is room for from the start: threads that sleep at once, and what each waits for.
  static constexpr size_t kSleepers = 4, kWaits = 16;

  const std::shared_ptr<shm::Node> node_;
  const shm::WaitPolicy policy_;
  PollWakers wakers_;
  std::atomic<int> helpers_{0};  // threads in Wait
  std::atomic<size_t> active_count_{0};
  std::atomic<bool> stopped_{false};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Lane>> active_;     // lanes with queued operations; guarded by mutex_
  std::vector<std::vector<pollfd>> spare_waits_;  // empty; guarded by mutex_
  std::thread thread_;  // started with the first asynchronous operation; guarded by mutex_ until stopped
};

}  // namespace gyre::internal
