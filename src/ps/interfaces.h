// What the parameter server's state machines stand on, beside base/clock.h: a network, a disk and chance. The machines
// have no threads, sockets, files or time of their own, so that a whole cluster runs in one thread from a seed
// (tests/ps/), and the same code behind real ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/wire.h"

namespace gyre::ps {

// Carries messages between servers and workers, each numbered from 0. A message may be late, lost, overtaken or come
// twice; it is never altered, and who sent it is known (net/handshake.h).
class Network {
 public:
  virtual ~Network() = default;

  // To the server or worker `peer`: of a server's network, to a worker; of a worker's, to a server; of the ring of
  // servers, to a Side (ps/replica.h). What the message points at is read before this returns, but for what its keeper
  // holds. Never blocks, never calls back.
  virtual void Send(int peer, const Message& message) = 0;
};

// A folder. What was written is there after a crash of the machine only once it was synced: the bytes of a file by
// Sync, its name by SyncFolder. Rename replaces its target, and is never seen half done. Calls may block; errors are
// the system's.
class Disk {
 public:
  virtual ~Disk() = default;
  virtual absl::Status Write(std::string_view name, std::string_view bytes) = 0;  // makes the file, or its bytes anew
  virtual absl::Status Sync(std::string_view name) = 0;
  virtual absl::Status Rename(std::string_view from, std::string_view to) = 0;
  virtual absl::Status SyncFolder() = 0;
  virtual absl::StatusOr<std::string> Read(std::string_view name) = 0;  // kNotFound: there is none
  virtual absl::Status Remove(std::string_view name) = 0;               // OK too where there is none
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;          // all names
};

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t Next() = 0;  // uniform
};

}  // namespace gyre::ps
