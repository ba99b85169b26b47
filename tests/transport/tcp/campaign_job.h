// Three ranks on three hosts, as far as they know, that exchange data over hubs without an end and check every byte:
// the job that a campaign must not harm.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/tcp/hub.h"

namespace gyre::tcp {

struct CampaignJobOptions {
  std::string job_id = "campaign";
  std::string secret;
  uint64_t epoch = 1;
  uint64_t seed = 1;  // of the data
  int liars = 1;      // ranks 0 to liars - 1: peers that the job's ranks wait for
  // Peers that the job's ranks connect to: the last ranks. One listener each.
  std::vector<Endpoint> decoys{};
};

// Thread-safe, but for Start and Stop.
class CampaignJob {
 public:
  static constexpr int kHubs = 3;

  static absl::StatusOr<std::unique_ptr<CampaignJob>> Start(const CampaignJobOptions& options);
  ~CampaignJob();

  // `number`: 0 to kHubs - 1
  Hub& hub(int number) { return *hubs_[static_cast<size_t>(number)]; }
  int rank(int number) const { return options_.liars + number; }
  int first_decoy() const { return options_.liars + kHubs; }
  bool IsHonest(int rank) const { return rank >= options_.liars && rank < first_decoy(); }

  // How many of the job's own have proved themselves to a hub. Exact after Pause.
  int64_t expected_peers(int number) const { return peers_came_[static_cast<size_t>(number)]; }
  int64_t transfers() const { return transfers_; }
  int64_t channels() const { return channels_; }
  int64_t lost_liars() const { return lost_liars_; }
  int64_t announcements() const { return announcements_; }

  // What went wrong first: a transfer that failed or brought other bytes, an honest rank taken for lost or gone.
  absl::Status failure() const;
  bool failed() const { return failed_; }

  // Ends the transfers in order and waits for that; the hubs stay.
  void Pause();

  // Pauses and closes.
  void Stop();

 private:
  explicit CampaignJob(const CampaignJobOptions& options) : options_(options) {}
  absl::Status Listen(int number);
  absl::Status Connect();
  void RunPair(int self, int other);
  absl::Status Exchange(Streams& streams, int self, int other, uint64_t seed, bool& last);
  void Fail(const absl::Status& status);

  const CampaignJobOptions options_;
  std::array<std::atomic<int64_t>, kHubs> peers_came_{};
  std::atomic<int64_t> transfers_ = 0, channels_ = 0, lost_liars_ = 0, announcements_ = 0;
  std::atomic<bool> stop_ = false, failed_ = false, closing_ = false;
  mutable std::mutex mutex_;
  absl::Status failure_;
  std::array<std::unique_ptr<Hub>, kHubs> hubs_;
  std::vector<std::thread> threads_;
};

}  // namespace gyre::tcp
