#include "launch/input_forwarder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace gyre::launch {

namespace {

constexpr size_t kPiece = size_t{16} << 10;

}  // namespace

void InputForwarder::Start() {
  open_ = true;
  Update();
}

void InputForwarder::OnReadable() {
  if (watched_) ReadOnce();
  Update();
}

void InputForwarder::OnTaken(size_t bytes) {
  in_flight_ -= std::min(bytes, in_flight_);
  Update();
}

void InputForwarder::Stop() {
  open_ = false;
  Update();
}

bool InputForwarder::ReadOnce() {
  std::array<char, kPiece> buffer;
  const ssize_t count = read(fd_, buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  open_ = count > 0;
  in_flight_ += count > 0 ? static_cast<size_t>(count) : 0;
  send_({buffer.data(), count > 0 ? static_cast<size_t>(count) : 0});
  return open_;
}

void InputForwarder::Update() {
  const bool wanted = open_ && in_flight_ + kPiece <= kInputWindow;
  if (wanted && always_ready_) {
    while (in_flight_ + kPiece <= kInputWindow && ReadOnce()) {
    }
  } else if (wanted && !watched_) {
    watched_ = poller_.AddReadable(fd_, {Source::kInput}).ok();
    if (!watched_) {
      always_ready_ = true;
      Update();
    }
  } else if (!wanted && watched_) {
    poller_.Remove(fd_);
    watched_ = false;
  }
}

}  // namespace gyre::launch
