// Connector: connecting to a peer and authenticating there (net/handshake.h) without blocking, again and again until
// that works or cannot. AuthenticatingListener (net/acceptor.h) is the other side.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/acceptor.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/handshake.h"

namespace gyre {

struct ConnectorOptions {
  std::string what;                                    // names the other side in messages: "rank 3 on host b"
  Endpoint endpoint;                                   // of an address: nothing is looked up
  Duration attempt_timeout = std::chrono::seconds(5);  // for one connection and its handshake
  TimePoint deadline = TimePoint::max();
};

// Works on an event loop of the caller's, which must outlive it, from its constructor on. All on the loop's thread.
class Connector {
 public:
  // Called once, unless the connector is destroyed before; may destroy it. The descriptor is non-blocking, and not a
  // byte after the handshake was consumed. Errors: kDeadlineExceeded with the last failure in it; or the refusal of
  // the handshake, or of this machine to make a socket at all, which are not tried again.
  using OnDone = std::function<void(absl::StatusOr<Connected>)>;
  // Called when an attempt failed that is tried again (connection refused, timed out, no descriptor free); must not
  // destroy the connector.
  using OnRetry = std::function<void(const absl::Status&)>;

  Connector(EventLoop& loop, ConnectorOptions options, HandshakeIdentity self, std::string secret, OnDone on_done,
            OnRetry on_retry = nullptr);
  // Gives up in silence.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

 private:
  struct Attempt;

  void Begin();
  absl::Status TryBegin();
  void SocketReady();
  void Advance();
  void Succeed();
  void Fail(const absl::Status& why);
  void Finish(absl::StatusOr<Connected> result);
  void SetTimer(TimePoint when, void (Connector::*then)());
  void TimedOut();

  EventLoop& loop_;
  const ConnectorOptions options_;
  const HandshakeIdentity self_;
  const std::string secret_;
  OnDone on_done_;
  OnRetry on_retry_;
  std::unique_ptr<Attempt> attempt_;
  Duration pause_;
  EventLoop::TimerId timer_{};
};

}  // namespace gyre
