#include "transport/shm/mesh.h"

#include <openssl/rand.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/pidfd.h"
#include "base/status.h"
#include "net/socket.h"
#include "transport/shm/control_block.h"

namespace gyre::shm {

namespace {

// One byte must travel with the descriptors.
constexpr std::array<std::byte, 1> kToken = {std::byte{0x47}};

constexpr char kSocketPrefix[] = "mesh-";  // of a file's name
constexpr size_t kRandomNameBytes = 12;    // after it, in hexadecimal digits

absl::Status SendMemory(int socket, const OwnMemory& own, TimePoint deadline) {
  const int fds[] = {own.control.fd(), own.arena->segment().fd()};
  return SendWithFds(socket, kToken, fds, deadline);
}

absl::Status ReceiveMemory(Link& link, TimePoint deadline) {
  std::array<std::byte, 1> token{};
  ASSIGN_OR_RETURN(std::vector<UniqueFd> fds, ReceiveWithFds(link.socket.get(), token, 2, deadline));
  if (token != kToken || fds.size() != 2) return absl::DataLossError("the peer sent no shared memory");
  ASSIGN_OR_RETURN(link.control, Segment::Map(std::move(fds[0]), kControlSegmentBytes));
  ASSIGN_OR_RETURN(link.arena, Segment::Map(std::move(fds[1]), 1));
  link.control.CloseFd();
  link.arena.CloseFd();
  const auto* block = reinterpret_cast<const ControlBlock*>(link.control.data());
  if (block->magic != kControlMagic || static_cast<int>(block->rank) != link.rank) {
    return absl::DataLossError("the peer's shared memory is not that of this rank, or of another version of Gyre");
  }
  return absl::OkStatus();
}

std::string PeerName(int rank) {
  return absl::StrCat("rank ", rank);
}

// For Link::process. Call while the peer waits for this rank: then its number is not another's by now.
UniqueFd OpenPeerProcess(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  if (peer.pid <= 0 || peer.pid == getpid()) return {};
  return OpenPidfd(peer.pid);
}

// A socket that nobody listens at refuses connections. So does one that is about to be listened at: those that are new
// stay.
void RemoveDeadSockets(const std::string& directory) {
  constexpr int kMost = 256;  // there are few, unless the directory is full of something else
  const auto before = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(1);
  std::error_code end, error;
  int looked = 0;
  for (std::filesystem::directory_iterator at(directory, end);
       !end && at != std::filesystem::directory_iterator() && looked < kMost; at.increment(end), ++looked) {
    const std::string path = at->path();
    if (!at->path().filename().string().starts_with(kSocketPrefix) || !at->is_socket(error)) continue;
    const auto written = std::filesystem::last_write_time(path, error);
    if (error || written > before) continue;
    if (!Mesh::IsReachable(path)) unlink(path.c_str());
  }
}

absl::Status CheckLength(const std::string& directory) {
  constexpr size_t kMost = kMaxUnixNameBytes - sizeof(kSocketPrefix) - 2 * kRandomNameBytes;
  if (directory.size() <= kMost) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the ranks of a host meet at Unix sockets in ", directory, ", a path of ", directory.size(),
                   " bytes that may have ", kMost, " (a socket's ", kMaxUnixNameBytes,
                   "): set XDG_RUNTIME_DIR, on all of them, to a directory with a path that is ",
                   directory.size() - kMost, " bytes shorter"));
}

}  // namespace

absl::StatusOr<OwnMemory> OwnMemory::Create(int rank, int64_t arena_bytes) {
  OwnMemory own;
  ASSIGN_OR_RETURN(own.control, Segment::Create("gyre-control", kControlSegmentBytes));
  ASSIGN_OR_RETURN(own.arena, internal::Arena::Create(arena_bytes));
  auto* block = reinterpret_cast<ControlBlock*>(own.control.data());
  block->magic = kControlMagic;
  block->rank = static_cast<uint32_t>(rank);
  return own;
}

Mesh::Mesh(HandshakeIdentity self, std::string secret, std::string address, std::unique_ptr<Acceptor> acceptor)
    : self_(std::move(self)),
      secret_(std::move(secret)),
      address_(std::move(address)),
      acceptor_(std::move(acceptor)) {}

Mesh::~Mesh() {
  if (address_[0] != '@') unlink(address_.c_str());
}

absl::StatusOr<std::unique_ptr<Mesh>> Mesh::Listen(HandshakeIdentity self, std::string secret,
                                                   const std::string& directory) {
  unsigned char random[kRandomNameBytes];
  if (RAND_bytes(random, sizeof(random)) != 1) return absl::InternalError("no random numbers to be had");
  const std::string name = absl::BytesToHexString({reinterpret_cast<const char*>(random), sizeof(random)});
  const std::string address =
      directory.empty() ? absl::StrCat("@gyre-", name) : absl::StrCat(directory, "/", kSocketPrefix, name);
  if (!directory.empty()) {
    RETURN_IF_ERROR(CheckLength(directory));
    RemoveDeadSockets(directory);
  }
  ASSIGN_OR_RETURN(UniqueFd listener, ListenUnix(address, 128));
  ASSIGN_OR_RETURN(auto acceptor, Acceptor::Create(std::move(listener), self, secret));
  return std::unique_ptr<Mesh>(new Mesh(std::move(self), std::move(secret), address, std::move(acceptor)));
}

bool Mesh::IsReachable(const std::string& address) {
  return !absl::IsUnavailable(ConnectUnix(address, TimePoint::min()).status());
}

absl::StatusOr<std::vector<Link>> Mesh::Connect(const std::vector<Address>& peers, const OwnMemory& own,
                                                TimePoint deadline) {
  std::vector<Link> links;
  std::vector<int> awaited;
  for (const Address& peer : peers) {
    if (peer.rank > self_.rank) {
      awaited.push_back(peer.rank);
      continue;
    }
    const std::string name = PeerName(peer.rank);
    ASSIGN_OR_RETURN(Connected connected, ConnectAuthenticated(
                                              name, [&](TimePoint limit) { return ConnectUnix(peer.address, limit); },
                                              self_, secret_, deadline));
    if (connected.peer.rank != peer.rank) {
      return absl::DataLossError(absl::StrCat("at the address of ", name, " answered ", Describe(connected.peer)));
    }
    Link link{.rank = peer.rank, .socket = std::move(connected.fd)};
    link.process = OpenPeerProcess(link.socket.get());
    absl::Status status = SendMemory(link.socket.get(), own, deadline);
    if (status.ok()) status = ReceiveMemory(link, deadline);
    if (!status.ok()) return Annotate(status, absl::StrCat("exchanging shared memory with ", name));
    links.push_back(std::move(link));
  }

  while (!awaited.empty()) {
    absl::StatusOr<AcceptedPeer> accepted = acceptor_->Next(deadline);
    if (!accepted.ok()) {
      return Annotate(accepted.status(),
                      absl::StrCat("waiting for rank ", absl::StrJoin(awaited, ", "), " to connect on this host"));
    }
    const auto expected = std::ranges::find(awaited, accepted->peer.rank);
    if (expected == awaited.end() || accepted->peer.role != Role::kRank) continue;  // no business here: hung up
    Link link{.rank = accepted->peer.rank, .socket = std::move(accepted->fd)};
    link.process = OpenPeerProcess(link.socket.get());
    absl::Status status = ReceiveMemory(link, deadline);
    if (status.ok()) status = SendMemory(link.socket.get(), own, deadline);
    if (!status.ok()) return Annotate(status, absl::StrCat("exchanging shared memory with ", PeerName(link.rank)));
    awaited.erase(expected);
    links.push_back(std::move(link));
  }
  return links;
}

}  // namespace gyre::shm
