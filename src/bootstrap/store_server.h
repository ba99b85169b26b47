// StoreServer: the rendezvous store of a job, where ranks meet. A key-value map in memory behind an authenticated TCP
// socket; docs/wire_format.md has the messages.
//
// Bounds: key 1 KiB, value 1 MiB, everything stored 256 MiB, a reply 16 MiB (a Gather's values together included);
// 256 connections under authentication, each for at most 5 s; memory for all of them: 256 KiB, and as often the secret
// and the job id.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "net/endpoint.h"

namespace gyre {

struct StoreServerOptions {
  std::string secret;
  std::string job_id;
  uint64_t epoch = 0;
  int size = 1;               // ranks: how many values complete a Gather
  bool ranks_return = false;  // see StoreState
};

// Owns one thread, which sleeps while nothing happens. Thread-safe.
class StoreServer {
 public:
  // Port 0: the kernel chooses one. Blocks only to look up a name, until `deadline` at most (kDeadlineExceeded).
  // kAlreadyExists: the port is taken. kResourceExhausted: no room for a thread.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(const Endpoint& listen, const StoreServerOptions& options,
                                                            TimePoint deadline);

  // Sends what clients are still owed (for at most 2 s, to a client that does not read), then closes.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Where it listens, with the port it got.
  const Endpoint& endpoint() const;

 private:
  class Service;
  explicit StoreServer(std::unique_ptr<Service> service);

  std::unique_ptr<Service> service_;
};

}  // namespace gyre
