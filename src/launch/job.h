// Job: what the ranks of one job meet by: its store, its id, and its secret.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "bootstrap/store_server.h"
#include "launch/rank_environment.h"

namespace gyre::launch {

// Not thread-safe. Destroying it closes the store.
class Job {
 public:
  // Serves the store on a loopback port of the kernel's choice. `size`: ranks.
  static absl::StatusOr<Job> Start(int size);

  const JobIdentity& identity() const { return identity_; }

 private:
  Job() = default;

  JobIdentity identity_;
  UniqueFd secret_;  // inherited by the ranks at this very number
  std::unique_ptr<StoreServer> store_;
};

}  // namespace gyre::launch
