// Hub: a rank's connections with the ranks of other hosts, over TCP.
//
// With each peer there is one control connection, for heartbeats and bad news, and one data connection for each channel
// that both use. The rank with the lower number connects, the other waits for it; connections are made when they are
// first asked for. Peers prove that they belong to the job (net/handshake.h) before anything else is read from them.
// Frames: docs/wire_format.md.
//
// A peer ends once, in one of two ways. It leaves, with a goodbye; what it sent before can still be read. Or it is
// lost: its control connection ended without a goodbye or brought what is no frame, it was silent for too long, it
// refused the handshake, or somebody else lost it; then its connections are shut down here, and all other peers are
// told.
//
// A stream that ends although its peer has not is reported after a moment (0.25 s) in which Read and Write return 0: if
// there is a better reason, the control connection brings it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/acceptor.h"
#include "net/endpoint.h"
#include "net/handshake.h"
#include "transport/streams.h"
#include "transport/tcp/control_frames.h"
#include "transport/tcp/peer_address.h"

namespace gyre::tcp {

struct HubOptions {
  Duration heartbeat_interval = std::chrono::milliseconds(100);  // 0: none are sent or missed
  Duration heartbeat_timeout = std::chrono::seconds(1);          // 0: silence is no loss
  Duration connect_timeout = std::chrono::seconds(5);            // of one attempt; attempts are repeated
};

// Called on the hub's thread, which they hold up; they must not call Close or destroy the hub. Any may be empty.
struct HubEvents {
  // At most one of the three, once a peer. The text names it and says why.
  std::function<void(int rank, const std::string& text)> on_lost;
  std::function<void(int rank, const std::string& text)> on_gave_up;  // it takes this rank for lost, and talks to it no
                                                                      // more: true or not, nobody else learns it
  std::function<void(int rank)> on_left;
  std::function<void(int from, const Announcement&)> on_announcement;
  std::function<void(int from, const CallNotice&)> on_call;
  std::function<void()> on_change;  // a connection came to be or a peer ended: who waits for Streams looks again
};

// Thread-safe, but for Start. One thread of its own, which sleeps when nothing is to be done.
class Hub {
 public:
  // Listens at `bind`; port 0: any. `self.rank` is this rank. Errors are those of ListenTcp, by its deadline.
  static absl::StatusOr<std::unique_ptr<Hub>> Listen(HandshakeIdentity self, std::string secret, const Endpoint& bind,
                                                     HubOptions options, HubEvents events, Logger logger,
                                                     TimePoint deadline);
  // Closes.
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Where it listens: to be told to the peers.
  Endpoint endpoint() const { return endpoint_; }

  // All ranks of other hosts. From now on connections are accepted and made. Once, before all that follows.
  // kInvalidArgument: an endpoint is not an address; kFailedPrecondition: started or closed before.
  absl::Status Start(const std::map<int, PeerAddress>& peers);

  // Blocks until there has been a control connection with each of them. kUnavailable: one of them is lost;
  // kDeadlineExceeded names those that were not reached, and why (attempts go on); kFailedPrecondition: closed.
  absl::Status Connect(std::span<const int> peers, TimePoint deadline);

  // Sees to it that there will be a control connection with each of them that is a peer, and does not wait for it.
  void Reach(std::span<const int> peers);

  // The streams of a channel, connected at the first Write or Read with each peer (and the control connection with it).
  // A number is used for one channel, ever, and by one Streams at a time. They must end before the hub does; after
  // Close they return kFailedPrecondition.
  std::unique_ptr<Streams> Open(uint64_t channel, const std::vector<int>& peers);

  // To every peer with a control connection, and to those with whom one is made later (the last 128). Does not block.
  void Announce(const Announcement& announcement);

  // To every peer with a control connection. Does not block.
  void TellCall(const CallNotice& notice);

  // Something else than this hub found a rank of the job lost, a peer or one of this host. All peers learn it, like
  // announcements. Does not block.
  void ReportLoss(int rank, const std::string& text);

  // How the peer has ended, by name, or this rank's hub; OK while neither has. kInvalidArgument: it is no peer.
  absl::Status EndOf(int peer) const;

  // What keeps a peer from being connected, for messages; empty where a control connection is there.
  std::string WhyNotConnected(int peer) const;

  // What became of those who connected here.
  AcceptorCounts counts() const;

  // Says goodbye, waits up to half a second for the peers to take note, ends the thread and all connections. No event
  // is called afterwards. Idempotent.
  void Close();

 private:
  class Core;

  Hub(std::unique_ptr<Core> core, Endpoint endpoint);

  const std::unique_ptr<Core> core_;
  const Endpoint endpoint_;
};

}  // namespace gyre::tcp
