#include "net/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "net/handshake_pump.h"
#include "net/interfaces.h"
#include "net/socket.h"

namespace gyre {

namespace {

constexpr int kAcceptsPerEvent = 64;  // then the others get their turn
constexpr auto kAcceptPause = std::chrono::milliseconds(50);

}  // namespace

struct AuthenticatingListener::Pending {
  Pending(UniqueFd connection, const HandshakeIdentity& self, const std::string& secret)
      : fd(std::move(connection)), handshake(self, secret), pump(handshake, /*output=*/{}) {}

  UniqueFd fd;
  HandshakeServer handshake;
  HandshakePump pump;
  bool waits_to_write = false;
  EventLoop::TimerId timer{};
  PendingList::iterator self;
};

absl::StatusOr<std::unique_ptr<AuthenticatingListener>> AuthenticatingListener::Create(
    EventLoop& loop, UniqueFd listener, HandshakeIdentity self, std::string secret, AcceptorOptions options,
    OnPeer on_peer) {
  RETURN_IF_ERROR(SetNonBlocking(listener.get(), true));
  const int fd = listener.get();
  auto created = std::unique_ptr<AuthenticatingListener>(new AuthenticatingListener(
      loop, std::move(listener), std::move(self), std::move(secret), options, std::move(on_peer)));
  RETURN_IF_ERROR(loop.Add(fd, EPOLLIN, [listener = created.get()](uint32_t) { listener->Accept(); }));
  return created;
}

AuthenticatingListener::AuthenticatingListener(EventLoop& loop, UniqueFd listener, HandshakeIdentity self,
                                               std::string secret, AcceptorOptions options, OnPeer on_peer)
    : loop_(loop),
      listener_(std::move(listener)),
      self_(std::move(self)),
      secret_(std::move(secret)),
      options_(options),
      on_peer_(std::move(on_peer)) {}

AuthenticatingListener::~AuthenticatingListener() {
  if (paused_) loop_.CancelTimer(pause_timer_);
  while (!pending_.empty()) Drop(*pending_.front());
  loop_.Remove(listener_.get());
}

void AuthenticatingListener::Accept() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      Admit(std::move(fd));
      continue;
    }
    switch (errno) {
      case EAGAIN: return;
      case EINTR:
      case ECONNABORTED:
      case EPROTO: continue;
      default: break;
    }
    // Out of descriptors or memory: strangers go first. With none to send away, the listener would only stay readable.
    counts_.last_trouble = ErrnoStatus("accept");
    if (pending_.empty()) return PauseAccepting();
    DropOne();
  }
}

void AuthenticatingListener::PauseAccepting() {
  if (paused_ || !loop_.Modify(listener_.get(), 0).ok()) return;
  paused_ = true;
  ++counts_.pauses;
  pause_timer_ = loop_.AddTimer(std::chrono::steady_clock::now() + kAcceptPause, [this] {
    paused_ = false;
    loop_.Modify(listener_.get(), EPOLLIN).IgnoreError();
  });
}

void AuthenticatingListener::Admit(UniqueFd fd) {
  ++counts_.accepted;
  while (static_cast<int>(pending_.size()) >= std::max(options_.max_pending, 1)) DropOne();
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // of no effect on a Unix socket
  pending_.push_back(std::make_unique<Pending>(std::move(fd), self_, secret_));
  Pending& pending = *pending_.back();
  pending.self = std::prev(pending_.end());
  pending.timer =
      loop_.AddTimer(DeadlineAfter(std::chrono::steady_clock::now(), options_.handshake_timeout), [this, &pending] {
        ++counts_.timed_out;
        Drop(pending);
      });
  if (!loop_.Add(pending.fd.get(), EPOLLIN, [this, &pending](uint32_t) { Advance(pending); }).ok()) {
    return Drop(pending);
  }
  Advance(pending);  // an honest client's hello is usually there already, and sets it apart from strangers
}

void AuthenticatingListener::Advance(Pending& pending) {
  const auto need = pending.pump.Advance(pending.fd.get());
  if (!need.ok()) {
    CountRefusal(pending, need.status());
    return Drop(pending);
  }
  if (*need == HandshakePump::Need::kNothing) return Finish(pending);
  const bool waits_to_write = *need == HandshakePump::Need::kWrite;
  if (waits_to_write == std::exchange(pending.waits_to_write, waits_to_write)) return;
  if (!loop_.Modify(pending.fd.get(), waits_to_write ? EPOLLOUT : EPOLLIN).ok()) Drop(pending);
}

void AuthenticatingListener::CountRefusal(const Pending& pending, const absl::Status& why) {
  ++counts_.refused;
  counts_.last_refusal = why;
  // Who went away by itself, or never was a rank, explains nobody's absence.
  if (!pending.handshake.greeted() || pending.handshake.status().ok()) return;
  ++counts_.refused_peers;
  const auto from = PeerAddressOf(pending.fd.get());
  counts_.last_refused_peer = from.ok() ? Annotate(why, *from) : why;
}

void AuthenticatingListener::Finish(Pending& pending) {
  ++counts_.authenticated;
  loop_.Remove(pending.fd.get());
  AcceptedPeer peer{std::move(pending.fd), pending.handshake.peer()};
  loop_.CancelTimer(pending.timer);
  pending_.erase(pending.self);
  if (SetNonBlocking(peer.fd.get(), false).ok()) on_peer_(std::move(peer));
}

void AuthenticatingListener::DropOne() {
  ++counts_.dropped;
  const auto stranger =
      std::ranges::find_if(pending_, [](const auto& entry) { return !entry->handshake.challenged(); });
  Drop(stranger == pending_.end() ? *pending_.front() : **stranger);
}

void AuthenticatingListener::Drop(Pending& pending) {
  loop_.CancelTimer(pending.timer);
  loop_.Remove(pending.fd.get());
  pending_.erase(pending.self);
}

// --- Acceptor ---

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Create(UniqueFd listener, HandshakeIdentity self,
                                                           std::string secret, AcceptorOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create());
  auto acceptor = std::unique_ptr<Acceptor>(new Acceptor(std::move(loop)));
  auto on_peer = [ready = &acceptor->ready_](AcceptedPeer peer) { ready->push_back(std::move(peer)); };
  ASSIGN_OR_RETURN(acceptor->listener_,
                   AuthenticatingListener::Create(*acceptor->loop_, std::move(listener), std::move(self),
                                                  std::move(secret), options, std::move(on_peer)));
  return acceptor;
}

Acceptor::~Acceptor() = default;

absl::StatusOr<AcceptedPeer> Acceptor::Next(TimePoint deadline) {
  while (ready_.empty()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      const AcceptorCounts& counts = listener_->counts();
      if (counts.refused == 0) return absl::DeadlineExceededError("no peer came");
      return absl::DeadlineExceededError(absl::StrCat("no peer came; ", counts.refused,
                                                      " were refused, the last one: ", counts.last_refusal.message()));
    }
    RETURN_IF_ERROR(loop_->RunOnce(deadline));
  }
  AcceptedPeer peer = std::move(ready_.front());
  ready_.pop_front();
  return peer;
}

// --- The client's side ---

absl::StatusOr<Connected> ConnectAuthenticated(
    std::string_view what, const std::function<absl::StatusOr<UniqueFd>(TimePoint deadline)>& connect,
    const HandshakeIdentity& self, const std::string& secret, TimePoint deadline) {
  constexpr Duration kLongestPause = std::chrono::milliseconds(100);
  Duration pause = std::chrono::milliseconds(2);
  const auto attempt = [&]() -> absl::StatusOr<Connected> {
    ASSIGN_OR_RETURN(UniqueFd fd, connect(deadline));
    ASSIGN_OR_RETURN(HandshakeIdentity peer, AuthenticateTo(fd.get(), self, secret, deadline));
    return Connected{std::move(fd), std::move(peer)};
  };
  for (;;) {
    auto connected = attempt();
    if (connected.ok()) return connected;
    const TimePoint now = std::chrono::steady_clock::now();
    const bool took_all = absl::IsDeadlineExceeded(connected.status());  // of the time
    if (!took_all && !absl::IsUnavailable(connected.status())) return Annotate(connected.status(), what);
    if (took_all || now + pause >= deadline) {
      std::this_thread::sleep_until(deadline);
      return absl::DeadlineExceededError(
          absl::StrCat(ToAbsl(what), " was not reached in time: ", connected.status().message()));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace gyre
