// EventLoop: callbacks on descriptors and at times, on one thread.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"

namespace gyre {

// All methods belong to the thread that calls RunOnce, but Wake, which any thread may call. Level-triggered. An idle
// loop sleeps in the kernel.
class EventLoop {
 public:
  using Callback = std::function<void(uint32_t events)>;  // EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP
  using TimerId = std::pair<TimePoint, uint64_t>;

  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Calls `callback` whenever one of `events` (EPOLLIN, EPOLLOUT) holds. The descriptor stays the caller's, who removes
  // it before closing it. A callback may add, change and remove any descriptor, its own included; after Remove it is
  // not called again.
  absl::Status Add(int fd, uint32_t events, Callback callback);
  absl::Status Modify(int fd, uint32_t events);
  void Remove(int fd);

  // Calls `callback` once, when `when` has come.
  TimerId AddTimer(TimePoint when, std::function<void()> callback);
  void CancelTimer(TimerId id);  // of one that has run: no effect

  // Waits until something is to be called, Wake was called, or the deadline has passed; calls it; returns.
  absl::Status RunOnce(TimePoint deadline);

  // Makes a RunOnce that is waiting, or else the next one, return soon. Thread-safe, async-signal-safe.
  void Wake();

 private:
  struct Watch;

  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void RunTimers();

  UniqueFd epoll_;
  UniqueFd wake_;
  std::unordered_map<int, std::shared_ptr<Watch>> watches_;        // by descriptor
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> by_token_;  // what epoll hands back: never reused
  std::map<TimerId, std::function<void()>> timers_;
  uint64_t next_id_ = 1;
};

}  // namespace gyre
