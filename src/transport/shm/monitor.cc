#include "transport/shm/monitor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/pidfd.h"
#include "base/status.h"
#include "base/thread.h"

namespace gyre::shm {

namespace {

constexpr uint64_t kTimerKey = ~uint64_t{0};
constexpr uint64_t kStopKey = ~uint64_t{1};

absl::Status Watch(int epoll, int fd, uint64_t key) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = key;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return ErrnoStatus("cannot watch a descriptor");
  return absl::OkStatus();
}

}  // namespace

Monitor::Monitor(std::vector<Peer> peers, ControlBlock& own, Duration interval, Duration timeout, Events events)
    : peers_(std::move(peers)),
      own_(own),
      timeout_(timeout),
      events_(std::move(events)),
      judge_(static_cast<int>(peers_.size()), interval),
      gone_(peers_.size()) {}

absl::StatusOr<std::unique_ptr<Monitor>> Monitor::Start(std::vector<Peer> peers, ControlBlock& own, Duration interval,
                                                        Duration timeout, Events events) {
  std::unique_ptr<Monitor> monitor(new Monitor(std::move(peers), own, interval, timeout, std::move(events)));
  RETURN_IF_ERROR(monitor->Open(interval));
  // The first beat is this thread's: peers do not judge who has never beaten, and the monitor's own thread may be late.
  own.beat.fetch_add(1, std::memory_order_relaxed);
  ASSIGN_OR_RETURN(monitor->thread_, StartThread("the monitor's thread", [m = monitor.get()] { m->Run(); }));
  return monitor;
}

absl::Status Monitor::Open(Duration interval) {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  timer_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  stop_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !timer_ || !stop_) return ErrnoStatus("cannot open the monitor's descriptors");
  itimerspec period{};
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(interval).count();
  period.it_interval.tv_sec = nanoseconds / 1'000'000'000;
  period.it_interval.tv_nsec = nanoseconds % 1'000'000'000;
  period.it_value = period.it_interval;
  if (timerfd_settime(timer_.get(), 0, &period, nullptr) != 0) return ErrnoStatus("cannot set the heartbeat's timer");
  RETURN_IF_ERROR(Watch(epoll_.get(), timer_.get(), kTimerKey));
  RETURN_IF_ERROR(Watch(epoll_.get(), stop_.get(), kStopKey));
  for (size_t i = 0; i < peers_.size(); ++i) {  // keys: the sockets, then the processes
    RETURN_IF_ERROR(Watch(epoll_.get(), peers_[i].socket, i));
    if (peers_[i].process >= 0) RETURN_IF_ERROR(Watch(epoll_.get(), peers_[i].process, peers_.size() + i));
  }
  return absl::OkStatus();
}

Monitor::~Monitor() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void Monitor::Run() {
  Beat();
  for (;;) {
    epoll_event events[16];
    const int ready = epoll_wait(epoll_.get(), events, 16, -1);
    for (int i = 0; i < ready; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kStopKey) return;
      if (key == kTimerKey) {
        uint64_t expirations = 0;
        if (read(timer_.get(), &expirations, sizeof(expirations)) > 0) Beat();
      } else if (key < peers_.size()) {
        SocketReady(static_cast<int>(key));
      } else {
        ProcessEnded(static_cast<int>(key - peers_.size()));
      }
    }
  }
}

void Monitor::Beat() {
  own_.beat.fetch_add(1, std::memory_order_relaxed);
  judge_.Tick(std::chrono::steady_clock::now());
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!gone_[i]) Judge(static_cast<int>(i));
  }
  if (events_.on_beat) events_.on_beat();
}

void Monitor::Judge(int peer) {
  const Peer& p = peers_[static_cast<size_t>(peer)];
  const Duration silence = judge_.SilenceOf(peer, p.block->beat.load(std::memory_order_relaxed));
  if (p.block->left.load(std::memory_order_acquire) != 0) return Gone(peer, PeerFate::kLeft);
  if (timeout_ == Duration{} || silence < timeout_) return;
  const std::optional<bool> stopped = IsStopped(p.process);
  if (stopped == true) return Gone(peer, PeerFate::kStopped);
  if (!stopped || silence >= kPatience * timeout_) Gone(peer, PeerFate::kSilent);
}

void Monitor::SocketReady(int peer) {
  const Peer& p = peers_[static_cast<size_t>(peer)];
  char byte;
  // Nothing is ever sent on these sockets after the exchange of memory: a byte is as odd as it is harmless.
  const ssize_t got = recv(p.socket, &byte, 1, MSG_DONTWAIT);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, p.socket, nullptr);
  Ended(peer);
}

void Monitor::ProcessEnded(int peer) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peers_[static_cast<size_t>(peer)].process, nullptr);
  Ended(peer);
}

void Monitor::Ended(int peer) {
  const bool left = peers_[static_cast<size_t>(peer)].block->left.load(std::memory_order_acquire) != 0;
  Gone(peer, left ? PeerFate::kLeft : PeerFate::kDied);
}

void Monitor::Gone(int peer, PeerFate fate) {
  if (gone_[static_cast<size_t>(peer)]) return;
  gone_[static_cast<size_t>(peer)] = true;
  events_.on_gone(peer, fate);
}

}  // namespace gyre::shm
