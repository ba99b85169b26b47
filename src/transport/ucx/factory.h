// The UCX transport's face: carries the data between hosts by UCX instead of TCP, where a site's network has RDMA.
// Connections, heartbeats and who is lost stay with the hub (transport/tcp). Why it is as it is:
// docs/decisions/ucx_transport.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/handshake.h"
#include "transport/streams.h"

namespace gyre::ucx {

class Exchange;

// Whether there is a module to be loaded. kUnimplemented: this build, or this machine, has no libgyre_ucx; says where
// it was looked for.
absl::Status CheckModule();

// Thread-safe, but for Start.
class Transport {
 public:
  // Loads the module and starts UCX. `self.rank` is this rank. Errors: as CheckModule; kUnavailable: UCX does not
  // start, or there are no random numbers.
  static absl::StatusOr<std::unique_ptr<Transport>> Create(HandshakeIdentity self, std::string secret);
  ~Transport();

  // What the peers must be given, by a way that only ranks of the job can write to. Text of one line, no spaces.
  const std::string& address() const { return address_; }

  struct Peer {
    std::string address;
    std::string name;  // for messages
  };
  // Those on other hosts. `end_of`: how a peer has ended, by name; OK while it is there. Connections are made when
  // something is sent. Once, before Open. kDataLoss: an address is none.
  absl::Status Start(const std::map<int, Peer>& peers, std::function<absl::Status(int)> end_of);

  // A channel's streams. A number is used for one channel, ever, and by one Streams at a time. After Close they return
  // kFailedPrecondition.
  std::unique_ptr<Streams> Open(uint64_t channel, const std::vector<int>& peers);

  // A peer has ended, as `end_of` says: who sleeps for its streams looks again.
  void Wake();

  // Waits up to half a second for the peers to have what was sent, and ends all connections. Idempotent.
  void Close();

 private:
  Transport(HandshakeIdentity self, std::string secret, std::shared_ptr<Exchange> exchange, std::string address);

  const HandshakeIdentity self_;
  const std::string secret_;
  const std::shared_ptr<Exchange> exchange_;
  const std::string address_;
};

}  // namespace gyre::ucx
