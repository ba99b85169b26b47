#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/socket.h"
#include "net/socket_internal.h"

namespace gyre {

namespace {

struct UnixAddress {
  sockaddr_un address{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

absl::StatusOr<UnixAddress> MakeAddress(std::string_view name) {
  UnixAddress result;
  result.address.sun_family = AF_UNIX;
  static_assert(kMaxUnixNameBytes < sizeof(result.address.sun_path));
  if (name.size() < 2 || name.size() > kMaxUnixNameBytes || name.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", ToAbsl(name), "\" is not a Unix socket's name (2 to ", kMaxUnixNameBytes, " bytes)"));
  }
  std::memcpy(result.address.sun_path, name.data(), name.size());
  const bool abstract = name.front() == '@';
  if (abstract) result.address.sun_path[0] = '\0';
  // An abstract name is all its bytes, a path ends with a zero.
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1));
  return result;
}

absl::StatusOr<UniqueFd> UnixSocket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoStatus("socket");
  return fd;
}

}  // namespace

absl::StatusOr<UniqueFd> ListenUnix(std::string_view name, int backlog) {
  ASSIGN_OR_RETURN(const UnixAddress address, MakeAddress(name));
  ASSIGN_OR_RETURN(UniqueFd fd, UnixSocket());
  // On Linux the socket's file takes its mode from the descriptor's, so that it is never open to others, not even
  // between bind and a chmod.
  if (name.front() != '@' && fchmod(fd.get(), 0600) != 0) return ErrnoStatus("fchmod");
  if (bind(fd.get(), address.get(), address.length) != 0) {
    if (errno == EADDRINUSE) return absl::AlreadyExistsError(absl::StrCat("listen at ", ToAbsl(name), ": taken"));
    return ErrnoStatus(absl::StrCat("bind ", ToAbsl(name)));
  }
  if (listen(fd.get(), backlog) != 0) return ErrnoStatus(absl::StrCat("listen at ", ToAbsl(name)));
  RETURN_IF_ERROR(SetNonBlocking(fd.get(), false));
  return fd;
}

absl::StatusOr<UniqueFd> ConnectUnix(std::string_view name, TimePoint deadline) {
  ASSIGN_OR_RETURN(const UnixAddress address, MakeAddress(name));
  ASSIGN_OR_RETURN(UniqueFd fd, UnixSocket());
  // A full backlog is EAGAIN, and nothing to poll for: ask again.
  while (connect(fd.get(), address.get(), address.length) != 0) {
    if (errno != EAGAIN && errno != EINTR)
      return net_internal::TransferError(absl::StrCat("connect to ", ToAbsl(name)), errno);
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("connect to ", ToAbsl(name), ": its backlog stays full"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  RETURN_IF_ERROR(SetNonBlocking(fd.get(), false));
  return fd;
}

}  // namespace gyre
