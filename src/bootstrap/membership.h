// Membership: this process's place in the job, and the store where the job's ranks meet.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/environment.h"
#include "bootstrap/identity.h"
#include "bootstrap/store_client.h"
#include "bootstrap/store_server.h"

namespace gyre {

// On rank 0, where no launcher serves the store, it serves it for as long as it lives: rank 0 keeps it until the ranks
// need to meet no more. Accessors are thread-safe; Gather is for one thread at a time.
class Membership {
 public:
  // Finds this process's rank (bootstrap/identity.h) and meets the others. Returns when all have come. A process that
  // takes the place of one that died (StrategyConfig::life) does so too, unless they have met before: then it is apart.
  //   kDeadlineExceeded    names the ranks that did not come, or the store that was not reached
  //   kFailedPrecondition  the environment contradicts itself, or there is no secret; says what to do
  //   kUnauthenticated     somebody there holds another secret
  //   kAborted             the job is in a later epoch: this process was left over from before a restart
  //   kUnimplemented       ranks on several hosts without a store they could share
  static absl::StatusOr<std::unique_ptr<Membership>> Join(const Config& config, const Environment& environment,
                                                          TimePoint deadline);

  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  int rank() const { return identity_.rank; }
  int size() const { return identity_.size; }
  uint64_t epoch() const { return identity_.epoch; }  // how often the job was restarted
  const std::string& job_id() const { return identity_.job_id; }
  const std::string& secret() const { return secret_; }  // of the job; at least 16 bytes; never to be shown
  const std::string& launcher() const { return identity_.launcher; }  // see Identity
  bool apart() const { return apart_; }                               // it knows who it is, and has met nobody

  // The address at which this process reaches the store; empty where alone.
  const std::string& local_address() const { return local_address_; }

  // Every rank's value by rank; see StoreClient::Gather. Alone, and apart, it returns at once with this one's.
  absl::StatusOr<std::vector<std::string>> Gather(std::string_view name, std::string value, TimePoint deadline);

 private:
  Membership(Identity identity, std::string secret);

  Identity identity_;
  std::string secret_;
  bool apart_ = false;
  std::string local_address_;
  std::unique_ptr<StoreServer> server_;  // on rank 0, unless the launcher has it
  std::unique_ptr<StoreClient> client_;  // none where alone, or apart
};

}  // namespace gyre
