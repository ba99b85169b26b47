#include "transport/tcp/channel_streams.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::tcp {

namespace {

constexpr size_t kMaxPieces = 64;  // a call's; what is more waits for the next
constexpr Duration kGrace = std::chrono::milliseconds(250);

size_t Gather(std::span<const Bytes> pieces, std::array<iovec, kMaxPieces>& vectors) {
  size_t count = 0;
  for (const Bytes piece : pieces) {
    if (piece.empty()) continue;
    if (count == kMaxPieces) break;
    // sendmsg does not write there.
    vectors[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  }
  return count;
}

}  // namespace

ChannelStreams::ChannelStreams(Switchboard& board, uint64_t channel, const std::vector<int>& peers,
                               std::function<void(int)> want, std::function<void()> forget)
    : board_(board), channel_(channel), want_(std::move(want)), forget_(std::move(forget)) {
  for (const int peer : peers) peers_[peer];
}

ChannelStreams::~ChannelStreams() {
  peers_.clear();
  forget_();
}

// Null: there is no connection yet.
absl::StatusOr<ChannelStreams::Peer*> ChannelStreams::Connected(int rank) {
  const auto found = peers_.find(rank);
  if (found == peers_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is no peer of channel ", channel_));
  }
  Peer& peer = found->second;
  if (peer.connection != nullptr) return &peer;
  // First whether there is still hope, then for the connection: one that came between the two is not missed.
  const absl::Status hope = board_.WhyNoConnection(rank);
  peer.connection = board_.Take(channel_, rank);
  if (peer.connection != nullptr) return &peer;
  RETURN_IF_ERROR(hope);
  if (!std::exchange(peer.wanted, true)) want_(rank);
  return nullptr;
}

// The connection has ended. Usually because the peer has, or because it gave the channel up over a third one's end: the
// control connection is about to say so, and knows better than we who is to blame. It is given a moment.
absl::StatusOr<size_t> ChannelStreams::Ended(int rank, std::optional<End>& end, int error_number) const {
  RETURN_IF_ERROR(board_.EndOf(rank));
  const TimePoint now = std::chrono::steady_clock::now();
  if (!end) end = {now, error_number};
  if (now - end->seen < kGrace) return 0;
  const std::string what = absl::StrCat(board_.NameOf(rank), " ended the connection of channel ", channel_);
  if (end->error_number == 0) return absl::UnavailableError(what);
  return absl::UnavailableError(ErrnoStatus(what, end->error_number).message());
}

absl::StatusOr<size_t> ChannelStreams::Write(int rank, std::span<const Bytes> pieces) {
  ASSIGN_OR_RETURN(Peer* const peer, Connected(rank));
  if (peer == nullptr) return 0;
  std::array<iovec, kMaxPieces> vectors;
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = Gather(pieces, vectors);
  if (message.msg_iovlen == 0) return 0;
  for (;;) {
    const ssize_t sent = sendmsg(peer->connection->get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) return Ended(rank, peer->writing, errno);
  }
}

absl::StatusOr<size_t> ChannelStreams::Read(int rank, MutableBytes into) {
  ASSIGN_OR_RETURN(Peer* const peer, Connected(rank));
  if (peer == nullptr || into.empty()) return 0;
  for (;;) {
    const ssize_t received = recv(peer->connection->get(), into.data(), into.size(), MSG_DONTWAIT);
    if (received > 0) return static_cast<size_t>(received);
    if (received == 0) return Ended(rank, peer->reading, 0);
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) return Ended(rank, peer->reading, errno);
  }
}

void ChannelStreams::AddWaits(int rank, bool to_read, bool to_write, std::vector<pollfd>& waits) const {
  const auto found = peers_.find(rank);
  if (found == peers_.end() || found->second.connection == nullptr) return;
  // What has ended is always ready: there is nothing to wait for.
  const Peer& peer = found->second;
  const int events = (to_read && !peer.reading ? POLLIN : 0) | (to_write && !peer.writing ? POLLOUT : 0);
  if (events != 0) waits.push_back({peer.connection->get(), static_cast<short>(events), 0});
}

}  // namespace gyre::tcp
