#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/socket.h"
#include "net/socket_internal.h"

namespace gyre {

namespace {

// Room for all the descriptors the kernel passes in one message (SCM_MAX_FD), so that it cuts nothing that a sender
// can have sent and what is too many is seen, and closed, rather than lost.
constexpr size_t kKernelMaxFds = 253;

// Takes ownership of every descriptor the message brought.
void Collect(const msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&message), control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

// One recvmsg; returns how many bytes, having appended the descriptors that came along.
absl::StatusOr<size_t> ReceiveSome(int fd, MutableBytes bytes, std::vector<UniqueFd>& fds, TimePoint deadline) {
  alignas(cmsghdr) char control[CMSG_SPACE(kKernelMaxFds * sizeof(int))];
  for (;;) {
    iovec vector{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t received = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received >= 0) {
      Collect(message, fds);
      if ((message.msg_flags & MSG_CTRUNC) != 0) {
        return absl::InvalidArgumentError("receive: the message's control data was cut (out of descriptors?)");
      }
      if (received == 0) return absl::UnavailableError("receive: the other side closed the connection");
      return static_cast<size_t>(received);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      RETURN_IF_ERROR(net_internal::WaitFor(fd, POLLIN, deadline, "receive"));
    } else if (errno != EINTR) {
      return net_internal::TransferError("receive", errno);
    }
  }
}

}  // namespace

absl::Status SendWithFds(int fd, Bytes bytes, std::span<const int> fds, TimePoint deadline) {
  if (bytes.empty()) return absl::InvalidArgumentError("descriptors travel with at least one byte");
  if (fds.size() > kMaxPassedFds)
    return absl::InvalidArgumentError(absl::StrCat(fds.size(), " descriptors are too many"));
  if (fds.empty()) return SendAll(fd, bytes, deadline);
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassedFds * sizeof(int))] = {};
  iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  for (;;) {
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    // The descriptors went with the first bytes; what is left goes plainly.
    if (sent > 0) return SendAll(fd, bytes.subspan(static_cast<size_t>(sent)), deadline);
    if (sent == 0 || errno == EAGAIN || errno == EWOULDBLOCK) {
      RETURN_IF_ERROR(net_internal::WaitFor(fd, POLLOUT, deadline, "send"));
    } else if (errno != EINTR) {
      return net_internal::TransferError("send", errno);
    }
  }
}

absl::StatusOr<std::vector<UniqueFd>> ReceiveWithFds(int fd, MutableBytes bytes, size_t max_fds, TimePoint deadline) {
  if (bytes.empty()) return absl::InvalidArgumentError("descriptors travel with at least one byte");
  std::vector<UniqueFd> fds;
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(const size_t received, ReceiveSome(fd, bytes, fds, deadline));
    bytes = bytes.subspan(received);
    if (fds.size() > max_fds) {
      return absl::InvalidArgumentError(
          absl::StrCat("receive: ", fds.size(), " descriptors came where ", max_fds, " were expected"));
    }
  }
  return fds;
}

}  // namespace gyre
