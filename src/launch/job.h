// Job: what the ranks of one job meet by: its store, its id, and its secret.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "bootstrap/store_server.h"
#include "launch/rank_environment.h"

namespace gyre::launch {

struct JobKeys {
  std::string job_id;
  std::string secret;
  uint64_t epoch = 0;  // how often gyrerun has restarted it
};
absl::StatusOr<JobKeys> MakeJobKeys();

// Not thread-safe. Destroying it closes the store.
class Job {
 public:
  // Serves the store at `address`, on a port of the kernel's choice. `size`: ranks. `ranks_return`: one that dies is
  // started again (StoreServerOptions).
  static absl::StatusOr<Job> Serve(const JobKeys& keys, int size, const std::string& address, bool ranks_return);
  // The store is elsewhere; set_store says where.
  static absl::StatusOr<Job> Join(const JobKeys& keys, int size);
  void set_store(std::string endpoint) { identity_.store = std::move(endpoint); }

  const JobIdentity& identity() const { return identity_; }

 private:
  Job() = default;

  JobIdentity identity_;
  UniqueFd secret_;  // inherited by the ranks at this very number
  std::unique_ptr<StoreServer> store_;
};

}  // namespace gyre::launch
