#include "ps/process/link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/pidfd.h"
#include "base/status.h"
#include "net/interfaces.h"
#include "net/socket.h"
#include "ps/layout.h"
#include "transport/shm/monitor.h"

namespace gyre::ps {

namespace {

enum FrameType : uint16_t { kSetup = 1, kMessage = 2, kOffer = 3, kAccept = 4, kLent = 5, kReturned = 6 };

constexpr uint32_t kMostHeadBytes =
    16 << 20;  // a setup names all tensors, a Welcome has three steps for each partition
constexpr size_t kStagingBytes = 64 << 10;
constexpr size_t kBytesAtOnce = 8 << 20;  // then others have their turn
constexpr size_t kPiecesAtOnce = 16;
constexpr int kMostUnsent =
    384 << 10;  // bytes that wait in the system: some ms of 1 Gbit/s, until they are looked after

// Hosts are told apart by it as by the rest of the library, although memory could be shared across namespaces. These
// have the same number on many machines, so which boot of which machine it is, belongs to it.
std::string ThisHost() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::array<char, 64> text{};
  const ssize_t size = readlink("/proc/self/ns/net", text.data(), text.size());
  return absl::StrCat(boot, "/", absl::string_view(text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))));
}

// Within a host, or a network namespace, both ends have the same address.
bool IsOnHost(int fd) {
  const absl::StatusOr<std::string> here = LocalAddressOf(fd), there = PeerAddressOf(fd);
  return here.ok() && there.ok() && *here == *there;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> Link::Create(EventLoop& loop, UniqueFd fd, uint64_t epoch, std::string host,
                                                   Events events) {
  RETURN_IF_ERROR(SetNonBlocking(fd.get(), true));
  const bool on_host = IsOnHost(fd.get());
  // What the system has taken goes in its order. Not of all sockets, and no more than a wish.
  if (!on_host) setsockopt(fd.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent, sizeof(kMostUnsent));
  std::unique_ptr<Link> link(new Link(loop, std::move(fd), on_host, epoch, std::move(host), std::move(events)));
  RETURN_IF_ERROR(loop.Add(link->fd_.get(), EPOLLIN, [link = link.get()](uint32_t ready) { link->OnReady(ready); }));
  return link;
}

Link::Link(EventLoop& loop, UniqueFd fd, bool on_host, uint64_t epoch, std::string host, Events events)
    : loop_(loop),
      fd_(std::move(fd)),
      on_host_(on_host),
      epoch_(epoch),
      host_(host.empty() ? ThisHost() : std::move(host)),
      events_(std::move(events)),
      heard_(std::chrono::steady_clock::now()),
      decoder_(kMostHeadBytes),
      staging_(kStagingBytes),
      returned_(std::make_shared<std::vector<uint64_t>>()) {}

Link::~Link() {
  if (status_.ok()) loop_.Remove(fd_.get());
}

bool Link::IsStarved(TimePoint now, Duration timeout) const {
  const Duration silence = now - heard_;
  if (!status_.ok() || theirs_ == nullptr || silence < timeout / 2 || silence >= shm::kPatience * timeout) return false;
  // One that has ended is not stopped either; its connection may be open still, in a child of it.
  pollfd ended{.fd = theirs_->process(), .events = POLLIN, .revents = 0};
  return IsStopped(theirs_->process()) == false && poll(&ended, 1, 0) == 0;
}

void Link::SendSetup(std::string_view setup) {
  queue_.push_back({EncodeFrame({.type = kSetup, .epoch = epoch_}, setup), {}, {}});
}

void Link::Offer(const FloatArena& arena) {
  arena_ = &arena;
  const std::string payload = Written([&](WireWriter& writer) {
    writer.Text(host_);
    writer.Raw(arena.offer());
  });
  queue_.push_back({EncodeFrame({.type = kOffer, .epoch = epoch_}, payload), {}, {}});
}

void Link::Send(const Message& message) {
  if (Lend(message)) return;
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
  // Its head tells it from all others; its floats may have been made anew.
  const auto waits = [&out](const Outgoing& other) { return other.head == out.head; };
  if ((out.keeper || message.kind == Kind::kInit) && std::ranges::any_of(queue_, waits)) return;
  queue_.insert(message.kind == Kind::kAck ? PlaceOfAck() : queue_.end(), std::move(out));
}

// Before floats that wait: for an acknowledgement somebody holds others back. Behind what is half sent.
std::deque<Link::Outgoing>::iterator Link::PlaceOfAck() {
  const auto first = sent_ > 0 ? std::next(queue_.begin()) : queue_.begin();
  return std::find_if(first, queue_.end(), [](const Outgoing& waits) { return !waits.floats.empty(); });
}

// Says where the message's floats are, instead of sending them. False: they have to be sent.
bool Link::Lend(const Message& message) {
  if (!lending_ || !message.keeper) return false;
  const std::optional<uint64_t> offset = arena_->OffsetOf(message.values);
  if (!offset) return false;
  Message head = message;
  head.values = {};
  const std::string payload = Written([&](WireWriter& writer) {
    writer.U64(*offset);
    writer.U64(lent_);
    writer.Raw(Encode(head));
  });
  const auto floats = static_cast<uint32_t>(message.values.size() / sizeof(float));
  queue_.push_back({EncodeFrame({.type = kLent, .epoch = epoch_, .sequence = floats}, payload), {}, {}});
  loans_.emplace(lent_++, message.keeper);
  return true;
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
    if (total == 0) {
      heard_ = std::chrono::steady_clock::now();
      events_.on_bytes();
    }
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
  switch (frame.header.type) {
    case kSetup: return events_.on_setup(frame.payload);
    case kMessage: return TakeMessage(std::move(frame));
    case kOffer: return TakeOffer(frame.payload);
    case kLent: return TakeLent(frame);
    case kReturned: return TakeReturned(frame.payload);
    case kAccept:
      if (arena_ == nullptr) return Fail(absl::DataLossError("memory that was not offered is accepted"));
      lending_ = true;
      return;
    default: Fail(absl::DataLossError("a frame that is no message"));
  }
}

void Link::TakeMessage(Frame frame) {
  if (frame.header.sequence > kMostRowWords) {
    return Fail(absl::DataLossError("a message with more floats than any has"));
  }
  arriving_ = {std::move(frame.payload), {}, 0};
  if (frame.header.sequence == 0) return Finish();
  const bool fits = spare_.unshared() && spare_.size() == frame.header.sequence;
  arriving_.floats = fits ? std::exchange(spare_, Floats()) : Floats(frame.header.sequence);
  receiving_floats_ = true;
}

// Memory that cannot be reached from here is no error: floats then come through the connection.
void Link::TakeOffer(std::string_view payload) {
  WireReader reader(payload);
  const std::string_view host = reader.Text();
  if (!reader.ok() || theirs_ != nullptr) return Fail(absl::DataLossError("a malformed or second offer of memory"));
  if (host != host_) return;
  auto mapped = MappedArena::Map(payload.substr(sizeof(uint32_t) + host.size()));
  if (absl::IsInvalidArgument(mapped.status())) return Fail(mapped.status());
  if (!mapped.ok()) return;
  theirs_ = *std::move(mapped);
  queue_.push_back({EncodeFrame({.type = kAccept, .epoch = epoch_}, ""), {}, {}});
}

void Link::TakeLent(const Frame& frame) {
  WireReader reader(frame.payload);
  const uint64_t offset = reader.U64(), loan = reader.U64(), count = frame.header.sequence;
  const bool fits = reader.ok() && theirs_ != nullptr && count > 0 && count <= kPartitionBytes / sizeof(float);
  float* const data = fits ? theirs_->At(offset, count) : nullptr;
  if (data == nullptr) return Fail(absl::DataLossError("floats are lent that are not in the memory that was offered"));
  const auto give_back = [theirs = theirs_, returned = returned_, loan](float*) { returned->push_back(loan); };
  arriving_ = {.head = frame.payload.substr(2 * sizeof(uint64_t)),
               .floats = Floats(std::shared_ptr<float[]>(data, give_back), count),
               .lent = true};
  Finish();
}

void Link::TakeReturned(std::string_view payload) {
  WireReader reader(payload);
  for (size_t i = 0; i < payload.size() / sizeof(uint64_t); ++i) {
    if (loans_.erase(reader.U64()) == 0) return Fail(absl::DataLossError("what was not lent is given back"));
  }
  if (!reader.AtEnd()) Fail(absl::DataLossError("a malformed return of what was lent"));
}

void Link::GiveBack() {
  if (returned_->empty()) return;
  const std::string payload = Written([&](WireWriter& writer) {
    for (const uint64_t loan : *returned_) writer.U64(loan);
  });
  returned_->clear();
  queue_.push_back({EncodeFrame({.type = kReturned, .epoch = epoch_}, payload), {}, {}});
}

void Link::Finish() {
  receiving_floats_ = false;
  absl::StatusOr<Message> message = Decode(arriving_.head);
  if (!message.ok()) return Fail(message.status());
  const bool carries = message->kind == Kind::kInit || message->kind == Kind::kPush || message->kind == Kind::kValues ||
                       message->kind == Kind::kPullRows || message->kind == Kind::kRows ||
                       (message->kind == Kind::kForward && message->entry == Entry::kPush);
  if (carries != static_cast<bool>(arriving_.floats) || !message->values.empty()) {
    return Fail(absl::DataLossError("a message with or without floats that should be otherwise"));
  }
  message->values = arriving_.floats.bytes();
  message->keeper = arriving_.floats;
  events_.on_message(*message);
  message->keeper = {};
  if (!arriving_.lent && arriving_.floats.unshared()) spare_ = std::move(arriving_.floats);
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
  if (status_.ok()) GiveBack();
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
  loans_.clear();
}

}  // namespace gyre::ps
