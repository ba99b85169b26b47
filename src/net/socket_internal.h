// What the socket_*.cc files share.
#pragma once

#include <sys/socket.h>

#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"

namespace gyre::net_internal {

// Waits until one of poll(2)'s `events` holds, or the socket has failed or hung up (the next call on it will tell).
// kDeadlineExceeded: "`what`: timed out".
absl::Status WaitFor(int fd, short events, TimePoint deadline, std::string_view what);

// The status of a failed send or receive: the peer's end is kUnavailable.
absl::Status TransferError(std::string_view what, int error_number);

// Connects a non-blocking socket, waiting until the deadline.
absl::Status ConnectSocket(int fd, const sockaddr* address, socklen_t length, TimePoint deadline);

// What became of a connect that was under way, once the socket is writable.
absl::Status ConnectOutcome(int fd);

}  // namespace gyre::net_internal
