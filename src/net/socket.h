// Sockets: thin functions on descriptors. All sockets made here are close-on-exec, TCP ones have TCP_NODELAY, nothing
// here raises SIGPIPE.
//
// Deadlines: a call returns by its deadline with success or
//   kDeadlineExceeded  time is up; bytes may have been transferred in part: the stream is of no more use
//   kUnavailable       the other side is not there, closed the stream, or reset it
// Descriptors may be blocking or not: waiting is by poll, and a blocking descriptor is never waited on in the kernel.
//
// Threads: different threads may use different directions of a socket.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/bytes.h"
#include "net/endpoint.h"

namespace gyre {

// --- TCP ---

// Port 0: the kernel chooses; LocalEndpoint tells. kAlreadyExists: the port is taken. The deadline is for the name to
// be looked up: an address takes no time.
absl::StatusOr<UniqueFd> ListenTcp(const Endpoint& endpoint, int backlog, TimePoint deadline);

// The address a socket is bound to.
absl::StatusOr<Endpoint> LocalEndpoint(int fd);

// One attempt, at each address the name has; does not retry. Errors name the endpoint.
absl::StatusOr<UniqueFd> ConnectTcp(const Endpoint& endpoint, TimePoint deadline);

// The same for an event loop, in two parts. Begin returns a non-blocking socket; once that is writable, Finish tells
// what became of the connection. The host must be an address (IsAddress): nothing is looked up.
absl::StatusOr<UniqueFd> BeginConnectTcp(const Endpoint& endpoint);
absl::Status FinishConnectTcp(int fd);

// --- Unix stream sockets ---

inline constexpr size_t kMaxUnixNameBytes = 107;

// A name that starts with '@' is an abstract address: it leaves no file, is visible to every user of the network
// namespace (authenticate!), and ends with its listener. Any other name is a path, created with mode 0600, that the
// caller unlinks. kAlreadyExists: the name is taken. kInvalidArgument: the name is too long.
absl::StatusOr<UniqueFd> ListenUnix(std::string_view name, int backlog);

// One attempt; waits only where the listener's backlog is full.
absl::StatusOr<UniqueFd> ConnectUnix(std::string_view name, TimePoint deadline);

// --- Bytes ---

absl::Status SendAll(int fd, Bytes bytes, TimePoint deadline);

// Receives at least one byte and at most bytes.size(); returns how many. REQUIRES: `bytes` is not empty.
absl::StatusOr<size_t> ReceiveSome(int fd, MutableBytes bytes, TimePoint deadline);

// Fills `bytes`. The end of the stream before that is kUnavailable.
absl::Status ReceiveExactly(int fd, MutableBytes bytes, TimePoint deadline);

// --- Descriptors over Unix sockets ---

inline constexpr size_t kMaxPassedFds = 64;

// Sends at least one byte together with at most kMaxPassedFds descriptors, which stay the caller's.
absl::Status SendWithFds(int fd, Bytes bytes, std::span<const int> fds, TimePoint deadline);

// The counterpart: fills `bytes` (of the size that was sent) and returns the descriptors that came with them, all
// close-on-exec. More than `max_fds`, or control data that the kernel had to cut, is kInvalidArgument; descriptors
// that did arrive are closed, none leaks.
absl::StatusOr<std::vector<UniqueFd>> ReceiveWithFds(int fd, MutableBytes bytes, size_t max_fds, TimePoint deadline);

// --- Modes ---

absl::Status SetNonBlocking(int fd, bool non_blocking);

}  // namespace gyre
