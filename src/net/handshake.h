// The handshake by which two processes of a job prove to each other that they hold its secret, before anything else is
// read from a connection. Four messages of fixed size (docs/wire_format.md), so that what a stranger can make us hold
// is bounded:
//
//   client -> server   hello: version, job, epoch, rank, role, nonce
//   server -> client   challenge: epoch, rank, role, nonce; or a refusal
//   client -> server   proof: HMAC-SHA256(secret, "client" label, version, job id, both identities, both nonces)
//   server -> client   verdict, with the same HMAC under the "server" label
//
// Epochs are compared once the client has proved itself: a refusal because of them is proved too, so nobody is turned
// away, or reported as left over, on a stranger's word.
//
// The client proves first: a server gives strangers nothing to test guesses of the secret on. Fresh nonces on both
// sides make a recording useless, the labels a reflection. The secret is never logged or sent.
//
// The connection is authenticated, what follows on it is neither encrypted nor signed: it is for loopback, Unix
// sockets and networks one trusts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "net/bytes.h"

namespace gyre {

enum class Role : uint8_t { kRank = 1, kStore = 2, kLauncher = 3, kServer = 4 };

struct HandshakeIdentity {
  std::string job_id;
  uint64_t epoch = 0;
  int rank = 0;  // -1 where the role has none
  Role role = Role::kRank;

  friend bool operator==(const HandshakeIdentity&, const HandshakeIdentity&) = default;
};

// "rank 3", "the store", "the launcher", "server 1".
std::string Describe(const HandshakeIdentity& identity);

inline constexpr size_t kHelloBytes = 88;
inline constexpr size_t kChallengeBytes = 56;
inline constexpr size_t kProofBytes = 36;
inline constexpr size_t kVerdictBytes = 40;
inline constexpr size_t kMaxHandshakeMessageBytes = kHelloBytes;

using HandshakeNonce = std::array<std::byte, 32>;

// Common to both sides: a pure state machine (but for the nonce). Feed it input exactly as long as wanted() says, send
// what it puts into `output`, until wanted() is 0; then status() tells. A failed side may still have a last output: the
// refusal that lets the other side say why. Not thread-safe.
//
// status():  OK                 while under way, and when done: the peer is authenticated
//            kUnauthenticated   another secret, another job, not a Gyre process at all
//            kAborted           this side is of an older epoch than the other: its job was restarted without it
//            kCancelled         the other side is of an older one: it was left over, and is to go
//            kFailedPrecondition  another protocol version
class Handshake {
 public:
  virtual ~Handshake() = default;

  // How many bytes the next input has; 0 when it is over.
  size_t wanted() const { return wanted_; }
  bool done() const { return wanted_ == 0 && status_.ok(); }
  const absl::Status& status() const { return status_; }

  // The other side. REQUIRES: done()
  const HandshakeIdentity& peer() const { return peer_; }

  // Takes one whole message. REQUIRES: input.size() == wanted() > 0. Appends to `output`.
  virtual void Receive(Bytes input, std::string& output) = 0;

 protected:
  Handshake(HandshakeIdentity self, std::string secret, size_t wanted);
  void Fail(absl::Status status);

  const HandshakeIdentity self_;
  const std::string secret_;
  HandshakeIdentity peer_;
  HandshakeNonce own_nonce_;
  HandshakeNonce peer_nonce_{};
  size_t wanted_;
  absl::Status status_;
};

class HandshakeServer final : public Handshake {
 public:
  HandshakeServer(HandshakeIdentity self, std::string secret);
  void Receive(Bytes input, std::string& output) override;

  // Whether a hello came, of whatever job and version: who sent it speaks Gyre's handshake.
  bool greeted() const { return greeted_; }

  // Whether a hello of this job came: not a stranger's garbage, but no proof either.
  bool challenged() const { return challenged_; }

 private:
  void ReceiveHello(Bytes input, std::string& output);
  void ReceiveProof(Bytes input, std::string& output);

  bool greeted_ = false;
  bool challenged_ = false;
};

class HandshakeClient final : public Handshake {
 public:
  // Appends the hello to `output`.
  HandshakeClient(HandshakeIdentity self, std::string secret, std::string& output);
  void Receive(Bytes input, std::string& output) override;

 private:
  void ReceiveChallenge(Bytes input, std::string& output);
  void ReceiveVerdict(Bytes input);

  bool proved_ = false;
};

// The client's side as one blocking call, over a connected stream socket; net/acceptor.h has the server's.
//
// Returns by the deadline with the other side's identity, having consumed not a byte after the handshake. Errors are
// the state machine's, and kUnavailable (the other side closed; from a server under attack: try again) and
// kDeadlineExceeded.

absl::StatusOr<HandshakeIdentity> AuthenticateTo(int fd, const HandshakeIdentity& self, const std::string& secret,
                                                 TimePoint deadline);

}  // namespace gyre
