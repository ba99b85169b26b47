#include "launch/poller.h"

#include <sys/epoll.h>

#include <array>

#include "base/status.h"

namespace gyre::launch {

absl::Status Poller::Open() {
  fd_.Reset(epoll_create1(EPOLL_CLOEXEC));
  return fd_ ? absl::OkStatus() : ErrnoStatus("epoll_create1");
}

absl::Status Poller::Add(int fd, PollKey key, bool writable) {
  epoll_event event{};
  event.events = writable ? EPOLLOUT : EPOLLIN;
  event.data.u64 = uint64_t{static_cast<uint32_t>(key.source)} << 32 | key.index;
  return epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? absl::OkStatus() : ErrnoStatus("epoll_ctl");
}

void Poller::Remove(int fd) {
  epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::vector<PollKey> Poller::Wait(int milliseconds) {
  std::array<epoll_event, 128> events;
  const int count = epoll_wait(fd_.get(), events.data(), events.size(), milliseconds);
  std::vector<PollKey> keys;
  for (int i = 0; i < count; ++i) {
    const uint64_t data = events[i].data.u64;
    keys.push_back({static_cast<Source>(data >> 32), static_cast<uint32_t>(data)});
  }
  return keys;
}

}  // namespace gyre::launch
