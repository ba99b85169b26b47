// One operation on GPU tensors, piece by piece through a ring of slots: while one piece is in the collective, the next
// ones are copied out and the one before is copied back. The host looks at events and never waits for the GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/gpu_backend.h"
#include "collectives/gpu_staging.h"
#include "collectives/host_calls.h"
#include "collectives/staged/pieces.h"

namespace gyre::internal::staged {

class Operation final : public Pollable {
 public:
  Operation(HostCalls host, std::shared_ptr<Rings> rings, const GpuCall& call);
  ~Operation() override;

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint now) override;
  TimePoint deadline() const override;  // for its driver
  bool AddWaits(std::vector<pollfd>& waits) const override {
    return host_call_ != nullptr && host_call_->AddWaits(waits);
  }

 private:
  enum class State { kBefore, kRefusing, kMeasuring, kUnderWay, kEnded };

  void Begin();
  void Refuse(const absl::Status& why);
  void Measure();
  void BeginPieces(int64_t longest);
  absl::Status WaitForTensors();
  void CopyOut();
  absl::Status CopyOut(int64_t index);
  absl::Status CopyBack();
  absl::Status Finish();
  bool Look();
  void MakeHostCall(Call call);
  bool OnHostCallEnded();
  bool GiveUp(const absl::Status& why);
  bool End(absl::Status status);
  bool FailLate();
  void HaveProgramWait();
  std::string Context() const;
  Ring::Slot& slot(int64_t index) const { return ring_->slots[static_cast<size_t>(index) % ring_->slots.size()]; }
  Piece& piece(int64_t index) { return in_course_[static_cast<size_t>(index) % in_course_.size()]; }
  device::Gpu& gpu() const { return rings_->gpu(); }

  const HostCalls host_;
  const std::shared_ptr<Rings> rings_;
  const GpuCall gpu_call_;
  const Call& call_;
  const Signature signature_;
  State state_ = State::kBefore;
  TimePoint start_{};  // set by StartClock, or at the first look
  TimePoint deadline_{};
  std::unique_ptr<Ring> ring_;
  int64_t longest_ = 0;
  std::optional<Pieces> pieces_;
  std::vector<Piece> in_course_;          // one a slot
  int64_t copied_out_ = 0;                // pieces that were given to the GPU to be copied out
  int64_t called_ = 0;                    // whose calls have ended, and that were given to it to be copied back
  device::Gpu::Event written_ = nullptr;  // the last copy back that was queued
  std::shared_ptr<Pollable> host_call_;
  bool waits_for_gpu_ = false;
};

}  // namespace gyre::internal::staged
