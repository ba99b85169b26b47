// Streams: the bytes of one channel between hosts, whatever carries them (TCP, the simulator). A channel belongs to one
// communicator and one kind of traffic; in it every pair of ranks has one ordered, reliable stream each way. Nothing is
// buffered for a receiver that is not there: a full stream holds its sender back, and no other channel.
#pragma once

#include <poll.h>

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "net/bytes.h"

namespace gyre {

// Peers are named by their ranks in the job. One thread at a time. Nothing here blocks; who must wait looks again when
// the descriptors of AddWaits are ready, or at its own times.
class Streams {
 public:
  virtual ~Streams() = default;

  // Takes bytes from the front of `pieces`, which are sent one after the other; returns how many. 0: no room now, or no
  // connection yet. kUnavailable: the stream has ended, the peer is gone; says so by name.
  virtual absl::StatusOr<size_t> Write(int peer, std::span<const Bytes> pieces) = 0;

  // Fills the front of `into`; returns how many bytes. 0: nothing there yet. kUnavailable: as Write, once everything
  // sent before the end was read.
  virtual absl::StatusOr<size_t> Read(int peer, MutableBytes into) = 0;

  // Adds what poll(2) should wait for until the stream with `peer` can be read or written. Adds nothing where there is
  // nothing to wait for: no connection yet, or a transport without descriptors.
  virtual void AddWaits(int peer, bool to_read, bool to_write, std::vector<pollfd>& waits) const = 0;
};

}  // namespace gyre
