#include "net/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/socket_internal.h"

namespace gyre {

namespace net_internal {

absl::Status WaitFor(int fd, short events, TimePoint deadline, std::string_view what) {
  for (;;) {
    const TimePoint now = std::chrono::steady_clock::now();
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, PollMilliseconds(now, deadline));
    if (ready > 0 && (entry.revents & POLLNVAL) != 0) return ErrnoStatus(what, EBADF);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return ErrnoStatus(what);
    if (now >= deadline) return absl::DeadlineExceededError(absl::StrCat(ToAbsl(what), ": timed out"));
  }
}

absl::Status TransferError(std::string_view what, int error_number) {
  switch (error_number) {
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ECONNREFUSED:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENOENT:  // a Unix path that is not there (yet)
      return absl::UnavailableError(ErrnoStatus(what, error_number).message());
    default: return ErrnoStatus(what, error_number);
  }
}

absl::Status ConnectSocket(int fd, const sockaddr* address, socklen_t length, TimePoint deadline) {
  if (connect(fd, address, length) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS && errno != EINTR) return TransferError("connect", errno);
  RETURN_IF_ERROR(WaitFor(fd, POLLOUT, deadline, "connect"));
  return ConnectOutcome(fd);
}

absl::Status ConnectOutcome(int fd) {
  int error = 0;
  socklen_t error_size = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) != 0) return ErrnoStatus("getsockopt(SO_ERROR)");
  return error == 0 ? absl::OkStatus() : TransferError("connect", error);
}

}  // namespace net_internal

using net_internal::TransferError;
using net_internal::WaitFor;

// Both loops try first and wait only where that would block; MSG_DONTWAIT keeps a blocking descriptor from holding us
// past the deadline.

absl::Status SendAll(int fd, Bytes bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      RETURN_IF_ERROR(WaitFor(fd, POLLOUT, deadline, "send"));
    } else if (errno != EINTR) {
      return TransferError("send", errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> ReceiveSome(int fd, MutableBytes bytes, TimePoint deadline) {
  for (;;) {
    const ssize_t received = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received > 0) return static_cast<size_t>(received);
    if (received == 0) return absl::UnavailableError("receive: the other side closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      RETURN_IF_ERROR(WaitFor(fd, POLLIN, deadline, "receive"));
    } else if (errno != EINTR) {
      return TransferError("receive", errno);
    }
  }
}

absl::Status ReceiveExactly(int fd, MutableBytes bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(const size_t received, ReceiveSome(fd, bytes, deadline));
    bytes = bytes.subspan(received);
  }
  return absl::OkStatus();
}

absl::Status SetNonBlocking(int fd, bool non_blocking) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return ErrnoStatus("fcntl(F_GETFL)");
  const int wanted = non_blocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  if (wanted != flags && fcntl(fd, F_SETFL, wanted) != 0) return ErrnoStatus("fcntl(F_SETFL)");
  return absl::OkStatus();
}

}  // namespace gyre
