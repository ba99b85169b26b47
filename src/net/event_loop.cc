#include "net/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/status.h"

namespace gyre {

namespace {

constexpr uint64_t kWakeToken = 0;
constexpr int kMaxEvents = 64;

}  // namespace

struct EventLoop::Watch {
  int fd;
  uint64_t token;
  Callback callback;
};

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return ErrnoStatus("epoll_create1");
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return ErrnoStatus("eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeToken;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return ErrnoStatus("epoll_ctl");
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake)));
}

absl::Status EventLoop::Add(int fd, uint32_t events, Callback callback) {
  // Tokens are never used twice, so that an event still queued for a descriptor's former owner finds nobody.
  auto watch = std::make_shared<Watch>(Watch{fd, next_id_++, std::move(callback)});
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch->token;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return ErrnoStatus("epoll_ctl(add)");
  by_token_[watch->token] = watch;
  watches_[fd] = std::move(watch);
  return absl::OkStatus();
}

absl::Status EventLoop::Modify(int fd, uint32_t events) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return absl::NotFoundError("the descriptor is not watched");
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->second->token;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) return ErrnoStatus("epoll_ctl(modify)");
  return absl::OkStatus();
}

void EventLoop::Remove(int fd) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  by_token_.erase(found->second->token);
  watches_.erase(found);
}

EventLoop::TimerId EventLoop::AddTimer(TimePoint when, std::function<void()> callback) {
  const TimerId id{when, next_id_++};
  timers_.emplace(id, std::move(callback));
  return id;
}

void EventLoop::CancelTimer(TimerId id) {
  timers_.erase(id);
}

absl::Status EventLoop::RunOnce(TimePoint deadline) {
  if (!timers_.empty()) deadline = std::min(deadline, timers_.begin()->first.first);
  // A distant deadline wakes nobody: without one the kernel waits for good.
  const int timeout = deadline == TimePoint::max()
                          ? -1
                          : PollMilliseconds(std::chrono::steady_clock::now(), deadline, /*cap=*/24 * 3'600'000);
  std::array<epoll_event, kMaxEvents> events;
  const int count = epoll_wait(epoll_.get(), events.data(), kMaxEvents, timeout);
  if (count < 0 && errno != EINTR) return ErrnoStatus("epoll_wait");
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u64 == kWakeToken) {
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t drained = read(wake_.get(), &ignored, sizeof(ignored));
      continue;
    }
    const auto found = by_token_.find(event.data.u64);
    if (found == by_token_.end()) continue;
    const std::shared_ptr<Watch> watch = found->second;  // survives a Remove by its own callback
    watch->callback(event.events);
  }
  RunTimers();
  return absl::OkStatus();
}

void EventLoop::RunTimers() {
  const TimePoint now = std::chrono::steady_clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const std::function<void()> callback = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    callback();
  }
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

}  // namespace gyre
