// Connecting: before the first call the ranks of every host connect, and all learn whether all could.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "collectives/gpu_hierarchical/backend.h"

namespace gyre::internal::gpu_hierarchical {

// Within a host a deadline is a little later than between hosts, and than a rank's wait for its GPU, which only that
// rank can name: who waits there for a rank that waits for something else should learn of the latter.
inline constexpr std::chrono::milliseconds kGraceWithinHost{100};

// A call on nothing by the backend within the host, then one number over all hosts.
class Connecting final : public Pollable {
 public:
  // `signature`: of the call that waits for it, under which the ranks meet; outlives the object, as does the backend.
  Connecting(Backend& backend, const GpuCall& call, const Signature& signature);

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint now) override { start_ = now; }
  TimePoint deadline() const override;
  bool AddWaits(std::vector<pollfd>& waits) const override { return current_ != nullptr && current_->AddWaits(waits); }

 private:
  void Begin();
  bool OnEnded();
  bool End(absl::Status status);

  Backend& backend_;
  const GpuCall call_;
  const Signature& signature_;
  const RankCounts nothing_;  // of each rank of the host
  TimePoint start_{};
  std::shared_ptr<Pollable> current_;
  absl::Status within_;  // how it ended on this host
  int64_t all_ = 0;      // whether it ended well on all
  bool agreeing_ = false;
};

}  // namespace gyre::internal::gpu_hierarchical
