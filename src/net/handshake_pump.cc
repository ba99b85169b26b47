#include "net/handshake_pump.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/status.h"
#include "net/socket_internal.h"

namespace gyre {

absl::StatusOr<HandshakePump::Need> HandshakePump::Advance(int fd) {
  for (;;) {
    ASSIGN_OR_RETURN(const bool written, Write(fd));
    if (!written) return Need::kWrite;
    RETURN_IF_ERROR(handshake_.status());
    if (handshake_.done()) return Need::kNothing;
    ASSIGN_OR_RETURN(const bool read, Read(fd));
    if (!read) return Need::kRead;
  }
}

// Whether nothing is left to send.
absl::StatusOr<bool> HandshakePump::Write(int fd) {
  while (!output_.empty()) {
    const ssize_t sent = send(fd, output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      output_.erase(0, static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      const absl::Status broken = net_internal::TransferError("handshake: send", errno);
      RETURN_IF_ERROR(handshake_.status());  // says more than that the refused have gone
      return broken;
    }
  }
  return true;
}

// Whether a whole message came and was taken.
absl::StatusOr<bool> HandshakePump::Read(int fd) {
  while (filled_ < handshake_.wanted()) {
    const ssize_t received = recv(fd, input_.data() + filled_, handshake_.wanted() - filled_, MSG_DONTWAIT);
    if (received > 0) {
      filled_ += static_cast<size_t>(received);
    } else if (received < 0 && errno == EAGAIN) {
      return false;
    } else if (received == 0) {
      return absl::UnavailableError("the other side closed the connection before it had proved itself");
    } else if (errno != EINTR) {
      return net_internal::TransferError("handshake: receive", errno);
    }
  }
  handshake_.Receive(Bytes(input_).first(filled_), output_);
  filled_ = 0;
  return true;
}

}  // namespace gyre
