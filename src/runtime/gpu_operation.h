// One operation on GPU tensors as its communicator's lane sees it: in the first one the ranks choose what carries their
// collectives; then it is that backend's.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collectives/gpu_backend.h"
#include "collectives/lane.h"
#include "runtime/gpu_calls.h"
#include "runtime/gpu_marks.h"

namespace gyre::internal {

class GpuOperation final : public Pollable {
 public:
  // `marks`: null where the call is refused.
  GpuOperation(std::shared_ptr<GpuCalls> calls, const Call& call, GpuManner manner, std::unique_ptr<GpuMarks> marks,
               OpenedGpu gpu, absl::Status refused);

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint now) override;
  TimePoint deadline() const override { return TimePoint(Duration(look_at_.load(std::memory_order_relaxed))); }
  bool AddWaits(std::vector<pollfd>& waits) const override { return current_ != nullptr && current_->AddWaits(waits); }

 private:
  void Begin();
  void NoteDeadline();
  void Offer();
  bool OnEnded();
  void Follow(std::shared_ptr<Pollable> operation);
  void FollowBackend();
  bool End(absl::Status status);
  std::string Context() const { return Describe(signature_); }

  const std::shared_ptr<GpuCalls> calls_;
  const std::vector<int64_t> counts_, receive_counts_;  // what the call's spans refer to
  const Call call_;
  const Signature signature_;
  const GpuManner manner_;
  const std::unique_ptr<GpuMarks> marks_;
  const OpenedGpu gpu_;
  const absl::Status refused_;
  std::vector<GpuOffer> offers_;       // while they are exchanged: by rank
  std::shared_ptr<Pollable> current_;  // the exchange of offers, and then the backend's operation
  bool offering_ = false, ended_ = false;
  TimePoint start_{};
  TimePoint deadline_{};
  std::atomic<Duration::rep> look_at_{TimePoint::max().time_since_epoch().count()};  // what others ask for meanwhile
};

}  // namespace gyre::internal
