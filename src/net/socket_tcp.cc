#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/socket.h"
#include "net/socket_internal.h"

namespace gyre {

namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

absl::StatusOr<std::vector<Address>> Resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("resolve ", endpoint.host, ": ", gai_strerror(error),
                                               "; try: getent hosts ", endpoint.host, ", or its address"));
  }
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  freeaddrinfo(found);
  if (addresses.empty()) return absl::UnavailableError(absl::StrCat("resolve ", endpoint.host, ": no address"));
  return addresses;
}

// getaddrinfo knows no deadline: a name that is not plainly an address is looked up on a thread of its own, which is
// left behind where time is up (it owns what it writes to).
absl::StatusOr<std::vector<Address>> ResolveUntil(const Endpoint& endpoint, int flags, TimePoint deadline) {
  if (auto numeric = Resolve(endpoint, flags | AI_NUMERICHOST); numeric.ok()) return numeric;
  struct Answer {
    std::mutex mutex;
    std::condition_variable given;
    absl::StatusOr<std::vector<Address>> addresses = absl::UnknownError("under way");
    bool done = false;
  };
  auto answer = std::make_shared<Answer>();
  const auto look_up = [answer, endpoint, flags] {
    auto addresses = Resolve(endpoint, flags);
    const std::lock_guard lock(answer->mutex);
    answer->addresses = std::move(addresses);
    answer->done = true;
    answer->given.notify_one();
  };
  ASSIGN_OR_RETURN(std::thread thread, StartThread(absl::StrCat("resolve ", endpoint.host), look_up));
  thread.detach();
  std::unique_lock lock(answer->mutex);
  if (!answer->given.wait_until(lock, deadline, [&] { return answer->done; })) {
    return absl::DeadlineExceededError(absl::StrCat("resolve ", endpoint.host, ": timed out; try: its address"));
  }
  return answer->addresses;
}

absl::StatusOr<UniqueFd> TcpSocket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoStatus("socket");
  const int on = 1;
  if (setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) return ErrnoStatus("TCP_NODELAY");
  return fd;
}

absl::StatusOr<UniqueFd> ListenAt(const Address& address, int backlog) {
  ASSIGN_OR_RETURN(UniqueFd fd, TcpSocket(address.storage.ss_family));
  const int on = 1;
  // Without this a port stays taken for a minute after its last job.
  if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) return ErrnoStatus("SO_REUSEADDR");
  if (bind(fd.get(), address.get(), address.length) != 0 || listen(fd.get(), backlog) != 0) {
    if (errno == EADDRINUSE) return absl::AlreadyExistsError("the port is taken");
    return ErrnoStatus("bind");
  }
  RETURN_IF_ERROR(SetNonBlocking(fd.get(), false));
  return fd;
}

// A connect to an unused ephemeral port of this machine can meet itself (TCP simultaneous open): that is nobody.
absl::Status CheckNotItself(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_length = sizeof(own), peer_length = sizeof(peer);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 && own_length == peer_length &&
      std::memcmp(&own, &peer, own_length) == 0) {
    return absl::UnavailableError("connect: nobody listens");
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ConnectTo(const Address& address, TimePoint deadline) {
  ASSIGN_OR_RETURN(UniqueFd fd, TcpSocket(address.storage.ss_family));
  RETURN_IF_ERROR(net_internal::ConnectSocket(fd.get(), address.get(), address.length, deadline));
  RETURN_IF_ERROR(SetNonBlocking(fd.get(), false));
  RETURN_IF_ERROR(CheckNotItself(fd.get()));
  return fd;
}

}  // namespace

absl::StatusOr<UniqueFd> ListenTcp(const Endpoint& endpoint, int backlog, TimePoint deadline) {
  absl::Status last;
  ASSIGN_OR_RETURN(const std::vector<Address> addresses, ResolveUntil(endpoint, AI_PASSIVE, deadline));
  for (const Address& address : addresses) {
    auto fd = ListenAt(address, backlog);
    if (fd.ok()) return fd;
    last = fd.status();
  }
  return Annotate(last, absl::StrCat("listen at ", ToString(endpoint)));
}

absl::StatusOr<UniqueFd> ConnectTcp(const Endpoint& endpoint, TimePoint deadline) {
  absl::Status last;
  ASSIGN_OR_RETURN(const std::vector<Address> addresses, ResolveUntil(endpoint, 0, deadline));
  for (const Address& address : addresses) {
    auto fd = ConnectTo(address, deadline);
    if (fd.ok()) return fd;
    last = fd.status();
  }
  return absl::Status(last.code(), absl::StrCat(ToString(endpoint), ": ", last.message(),
                                                "; try: to start what is to listen there, or the right address and "
                                                "port"));
}

absl::StatusOr<UniqueFd> BeginConnectTcp(const Endpoint& endpoint) {
  const auto addresses = Resolve(endpoint, AI_NUMERICHOST);
  if (!addresses.ok()) return absl::InvalidArgumentError(absl::StrCat(ToString(endpoint), " is not an address"));
  const Address& address = addresses->front();
  ASSIGN_OR_RETURN(UniqueFd fd, TcpSocket(address.storage.ss_family));
  if (connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return net_internal::TransferError("connect", errno);
  }
  return fd;
}

absl::Status FinishConnectTcp(int fd) {
  RETURN_IF_ERROR(net_internal::ConnectOutcome(fd));
  return CheckNotItself(fd);
}

absl::StatusOr<Endpoint> LocalEndpoint(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return ErrnoStatus("getsockname");
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return Endpoint{inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text)), ntohs(v4->sin_port)};
  }
  if (storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    return Endpoint{inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text)), ntohs(v6->sin6_port)};
  }
  return absl::InvalidArgumentError("the socket is not a TCP socket");
}

}  // namespace gyre
