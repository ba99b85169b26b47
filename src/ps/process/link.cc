#include "ps/process/link.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/socket.h"
#include "ps/layout.h"

namespace gyre::ps {

namespace {

enum FrameType : uint16_t { kSetup = 1, kMessage = 2 };

constexpr uint32_t kMostHeadBytes =
    16 << 20;  // a setup names all tensors, a Welcome has three steps for each partition
constexpr size_t kStagingBytes = 64 << 10;
constexpr size_t kBytesAtOnce = 8 << 20;  // then others have their turn
constexpr size_t kPiecesAtOnce = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> Link::Create(EventLoop& loop, UniqueFd fd, uint64_t epoch, Events events) {
  RETURN_IF_ERROR(SetNonBlocking(fd.get(), true));
  std::unique_ptr<Link> link(new Link(loop, std::move(fd), epoch, std::move(events)));
  RETURN_IF_ERROR(loop.Add(link->fd_.get(), EPOLLIN, [link = link.get()](uint32_t ready) { link->OnReady(ready); }));
  return link;
}

Link::Link(EventLoop& loop, UniqueFd fd, uint64_t epoch, Events events)
    : loop_(loop),
      fd_(std::move(fd)),
      epoch_(epoch),
      events_(std::move(events)),
      decoder_(kMostHeadBytes),
      staging_(kStagingBytes) {}

Link::~Link() {
  if (status_.ok()) loop_.Remove(fd_.get());
}

void Link::SendSetup(std::string_view setup) {
  queue_.push_back({EncodeFrame({.type = kSetup, .epoch = epoch_}, setup), {}, {}});
}

void Link::Send(const Message& message) {
  Message head = message;
  head.values = {};
  const auto floats = static_cast<uint32_t>(message.values.size() / sizeof(float));
  Outgoing out{EncodeFrame({.type = kMessage, .epoch = epoch_, .sequence = floats}, Encode(head)), {}, message.keeper};
  if (out.keeper) {
    out.floats = message.values;
  } else {
    out.head.append(AsText(message.values));
  }
  // What was not acknowledged in time comes again; while it waits here, that is for the link's sake, and once will do.
  const auto waits = [&out](const Outgoing& other) {
    return other.floats.data() == out.floats.data() && other.head == out.head;
  };
  if ((out.keeper || message.kind == Kind::kInit) && std::ranges::any_of(queue_, waits)) return;
  queue_.push_back(std::move(out));
}

void Link::OnReady(uint32_t events) {
  if ((events & EPOLLOUT) != 0) Flush();
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) Read();
}

void Link::Read() {
  for (size_t total = 0; status_.ok() && total < kBytesAtOnce;) {
    MutableBytes room(staging_);
    if (receiving_floats_) room = std::as_writable_bytes(arriving_.floats.writable()).subspan(arriving_.filled);
    const ssize_t got = recv(fd_.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got < 0) return Fail(ErrnoStatus("receiving"));
    if (got == 0) return Fail(absl::UnavailableError("the other side has closed the connection"));
    total += static_cast<size_t>(got);
    if (receiving_floats_) {
      arriving_.filled += static_cast<size_t>(got);
      if (arriving_.filled == arriving_.floats.bytes().size()) Finish();
    } else {
      Take(room.first(static_cast<size_t>(got)));
    }
    // Less than there was room for: that was all, most likely.
    if (static_cast<size_t>(got) < room.size()) return;
  }
}

void Link::Take(Bytes bytes) {
  while (!bytes.empty() && status_.ok()) {
    if (receiving_floats_) {
      const MutableBytes room = std::as_writable_bytes(arriving_.floats.writable()).subspan(arriving_.filled);
      const size_t taken = std::min(room.size(), bytes.size());
      std::copy_n(bytes.begin(), taken, room.begin());
      arriving_.filled += taken;
      bytes = bytes.subspan(taken);
      if (taken == room.size()) Finish();
      continue;
    }
    absl::StatusOr<std::optional<Frame>> frame = decoder_.Next(bytes);
    if (!frame.ok()) return Fail(frame.status());
    if (*frame) TakeFrame(**std::move(frame));
  }
}

void Link::TakeFrame(Frame frame) {
  if (frame.header.epoch != epoch_) return Fail(absl::AbortedError("a frame of another epoch"));
  if (frame.header.type == kSetup) return events_.on_setup(frame.payload);
  if (frame.header.type != kMessage || frame.header.sequence > kPartitionBytes / sizeof(float)) {
    return Fail(absl::DataLossError("a frame that is no message"));
  }
  arriving_ = {std::move(frame.payload), {}, 0};
  if (frame.header.sequence == 0) return Finish();
  const bool fits = spare_.unshared() && spare_.size() == frame.header.sequence;
  arriving_.floats = fits ? std::exchange(spare_, Floats()) : Floats(frame.header.sequence);
  receiving_floats_ = true;
}

void Link::Finish() {
  receiving_floats_ = false;
  absl::StatusOr<Message> message = Decode(arriving_.head);
  if (!message.ok()) return Fail(message.status());
  const bool carries = message->kind == Kind::kInit || message->kind == Kind::kPush || message->kind == Kind::kValues;
  if (carries != static_cast<bool>(arriving_.floats) || !message->values.empty()) {
    return Fail(absl::DataLossError("a message with or without floats that should be otherwise"));
  }
  message->values = arriving_.floats.bytes();
  message->keeper = arriving_.floats;
  events_.on_message(*message);
  message->keeper = {};
  if (arriving_.floats.unshared()) spare_ = std::move(arriving_.floats);
  arriving_ = {};
}

// The first of what is queued, from where it was sent up to.
std::span<iovec> Link::Gather() {
  pieces_.clear();
  size_t skip = sent_;
  const auto add = [&](const void* data, size_t size) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size == skipped) return;
    pieces_.push_back({const_cast<char*>(static_cast<const char*>(data)) + skipped, size - skipped});
  };
  for (const Outgoing& out : queue_) {
    if (pieces_.size() + 2 > kPiecesAtOnce) break;
    add(out.head.data(), out.head.size());
    add(out.floats.data(), out.floats.size());
  }
  return pieces_;
}

void Link::Flush() {
  while (status_.ok() && !queue_.empty()) {
    const std::span<iovec> pieces = Gather();
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return Fail(ErrnoStatus("sending"));
    if (sent < 0) break;
    Sent(static_cast<size_t>(sent));
  }
  if (!status_.ok() || waits_to_send_ == !queue_.empty()) return;
  waits_to_send_ = !queue_.empty();
  if (absl::Status status = loop_.Modify(fd_.get(), waits_to_send_ ? EPOLLIN | EPOLLOUT : EPOLLIN); !status.ok()) {
    Fail(std::move(status));
  }
}

void Link::Sent(size_t bytes) {
  sent_ += bytes;
  while (!queue_.empty()) {
    const size_t size = queue_.front().head.size() + queue_.front().floats.size();
    if (sent_ < size) return;
    sent_ -= size;
    queue_.pop_front();
  }
}

void Link::Fail(absl::Status status) {
  if (!status_.ok()) return;
  status_ = std::move(status);
  loop_.Remove(fd_.get());
  queue_.clear();
}

}  // namespace gyre::ps
