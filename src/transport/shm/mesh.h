// Mesh: how the ranks of one host find each other and exchange their shared memory. Every pair of ranks has an
// authenticated Unix socket, over which each sends the descriptors of its two segments; the socket stays open, and its
// end tells that the peer died.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/acceptor.h"
#include "net/handshake.h"
#include "transport/shm/arena.h"
#include "transport/shm/segment.h"

namespace gyre::shm {

// Address space of a rank's control segment. Only what its communicators use is ever backed by memory.
inline constexpr int64_t kControlSegmentBytes = int64_t{16} << 30;

// What this rank shows the others.
struct OwnMemory {
  Segment control;
  std::shared_ptr<internal::Arena> arena;

  static absl::StatusOr<OwnMemory> Create(int rank, int64_t arena_bytes);
};

// A peer, connected and mapped.
struct Link {
  int rank = -1;  // in the job
  UniqueFd socket{};
  UniqueFd process{};  // a pidfd; empty where the peer is a thread of this process, or in a PID namespace out of sight
  Segment control{};
  Segment arena{};
};

// Listens on a Unix address of its own from the start; make it before the addresses are exchanged.
class Mesh {
 public:
  // `directory` empty: an abstract address, which leaves no file, but is seen only within its network namespace.
  // Otherwise a socket in this directory, removed with the mesh; those that killed ranks have left are removed too.
  // kFailedPrecondition: the directory's path is too long for that; says how long it may be.
  static absl::StatusOr<std::unique_ptr<Mesh>> Listen(HandshakeIdentity self, std::string secret,
                                                      const std::string& directory);
  ~Mesh();

  const std::string& address() const { return address_; }

  // Whether somebody listens there, as seen from this process: false on another machine, although its kernel may have
  // the same names. Does not block.
  static bool IsReachable(const std::string& address);

  struct Address {
    int rank;
    std::string address;
  };

  // Connects this rank to all of `peers` (the other ranks of this host, in the order of ranks): to lower ranks
  // actively, higher ones come. Blocks until the deadline at most: kDeadlineExceeded names the ranks that were missing.
  absl::StatusOr<std::vector<Link>> Connect(const std::vector<Address>& peers, const OwnMemory& own,
                                            TimePoint deadline);

 private:
  Mesh(HandshakeIdentity self, std::string secret, std::string address, std::unique_ptr<Acceptor> acceptor);

  const HandshakeIdentity self_;
  const std::string secret_;
  const std::string address_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace gyre::shm
