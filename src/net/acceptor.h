// Accepting connections from strangers and letting through those who prove themselves (net/handshake.h), many side by
// side: a silent or babbling stranger holds up nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/event_loop.h"
#include "net/handshake.h"

namespace gyre {

struct AcceptorOptions {
  int max_pending = 64;  // connections under authentication; one more drops one (AuthenticatingListener)
  std::chrono::milliseconds handshake_timeout{5'000};
};

struct AcceptedPeer {
  UniqueFd fd;  // blocking; not a byte after the handshake was consumed
  HandshakeIdentity peer;
};

// What became of strangers: for messages and tests.
struct AcceptorCounts {
  int64_t accepted = 0;       // connections
  int64_t authenticated = 0;  // of them
  int64_t refused = 0;        // wrong secret, job, epoch, or no handshake at all
  int64_t timed_out = 0;
  int64_t dropped = 0;  // to make room
  int64_t pauses = 0;   // accepting rested, for lack of descriptors or memory
  absl::Status last_refusal;
  // Of the refused, those that had said hello as Gyre's processes do: ranks, most likely. The last one's status begins
  // with its address, where it has one.
  int64_t refused_peers = 0;
  absl::Status last_refused_peer;
  absl::Status last_trouble;  // of accepting itself
};

// Room for one more is made by dropping the oldest connection that has not sent a hello of this job, or else the
// oldest: so a flood of strangers who do not know the job drops its own. A client that was dropped sees kUnavailable.
//
// Works on an event loop of the caller's and hands each authenticated peer to `on_peer`, on the loop's thread. The
// loop must outlive it. Memory before authentication: under 1 KiB a pending connection, and copies of the secret and
// the job id.
class AuthenticatingListener {
 public:
  using OnPeer = std::function<void(AcceptedPeer)>;

  static absl::StatusOr<std::unique_ptr<AuthenticatingListener>> Create(EventLoop& loop, UniqueFd listener,
                                                                        HandshakeIdentity self, std::string secret,
                                                                        AcceptorOptions options, OnPeer on_peer);
  ~AuthenticatingListener();
  AuthenticatingListener(const AuthenticatingListener&) = delete;
  AuthenticatingListener& operator=(const AuthenticatingListener&) = delete;

  const AcceptorCounts& counts() const { return counts_; }

 private:
  struct Pending;
  using PendingList = std::list<std::unique_ptr<Pending>>;

  AuthenticatingListener(EventLoop& loop, UniqueFd listener, HandshakeIdentity self, std::string secret,
                         AcceptorOptions options, OnPeer on_peer);
  void Accept();
  void PauseAccepting();
  void Admit(UniqueFd fd);
  void Advance(Pending& pending);
  void CountRefusal(const Pending& pending, const absl::Status& why);
  void Finish(Pending& pending);
  void Drop(Pending& pending);
  void DropOne();

  EventLoop& loop_;
  UniqueFd listener_;
  const HandshakeIdentity self_;
  const std::string secret_;
  const AcceptorOptions options_;
  OnPeer on_peer_;
  PendingList pending_;  // oldest first
  bool paused_ = false;
  EventLoop::TimerId pause_timer_{};
  AcceptorCounts counts_;
};

// The blocking form: accepts while Next runs, on the caller's thread. One thread at a time.
class Acceptor {
 public:
  // `listener` is a listening TCP or Unix stream socket.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Create(UniqueFd listener, HandshakeIdentity self, std::string secret,
                                                          AcceptorOptions options = {});
  ~Acceptor();

  // The next peer that has proved itself. kDeadlineExceeded tells how many were refused meanwhile, and why the last.
  absl::StatusOr<AcceptedPeer> Next(TimePoint deadline);

  const AcceptorCounts& counts() const { return listener_->counts(); }

 private:
  explicit Acceptor(std::unique_ptr<EventLoop> loop) : loop_(std::move(loop)) {}

  std::unique_ptr<EventLoop> loop_;
  std::list<AcceptedPeer> ready_;
  std::unique_ptr<AuthenticatingListener> listener_;
};

// The client's side: connects by `connect` and authenticates, again and again with a short back-off while that ends in
// kUnavailable (nobody listens yet, or a server under attack dropped us), until the deadline. Any other error is final.
// `what` names the other side in messages ("the store at 127.0.0.1:4000", "rank 2"); the message at the deadline has
// the last cause.
struct Connected {
  UniqueFd fd;
  HandshakeIdentity peer;
};
absl::StatusOr<Connected> ConnectAuthenticated(
    std::string_view what, const std::function<absl::StatusOr<UniqueFd>(TimePoint deadline)>& connect,
    const HandshakeIdentity& self, const std::string& secret, TimePoint deadline);

}  // namespace gyre
