// One call over hosts on GPU tensors, chunk by chunk: while one chunk goes between the hosts, the next ones are
// exchanged within the host and copied out, and those before are copied back and exchanged. The host looks at events
// and never waits for the GPU.
//
// What ranks of a host exchange has one order on all of them, whatever becomes of their parts of the network: as many
// chunks inward as there are slots, then by turns one outward and one inward. What each has queued, streams order:
// `within` exchanges, `out` and `back` copy, and events join them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/gpu_hierarchical/backend.h"
#include "collectives/gpu_hierarchical/chunks.h"

namespace gyre::internal::gpu_hierarchical {

class Operation final : public Pollable {
 public:
  Operation(std::shared_ptr<Backend> backend, const GpuCall& call);
  ~Operation() override;

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint now) override;
  TimePoint deadline() const override;  // for its driver
  bool AddWaits(std::vector<pollfd>& waits) const override;

 private:
  enum class State { kBefore, kBeginning, kUnderWay, kEnded };

  void Begin();
  absl::Status TakeMemory();
  void BeginChunks();
  absl::Status WaitForTensors();
  shm::Progress PollFirst();
  void OnFirstEnded();

  shm::Progress PollWithin();
  bool GoesInward() const;
  absl::Status BeginInward();
  absl::Status EndInward();
  absl::Status BeginOutward();
  absl::Status EndOutward();
  void BeginWithin(Call call, device::Gpu::Event ready);
  void OnWithinEnded();
  void EndTurn();

  shm::Progress PollBetween();
  bool BeginBetween();
  void OnBetweenEnded();
  absl::Status CopyBack();

  absl::Status Queue(const Copy& copy, device::Gpu::Stream stream);
  absl::Status HaveProgramWait();
  void StopWithin();
  std::string Lateness() const;
  bool FailLate();
  bool GiveUp(const absl::Status& why);
  bool End(absl::Status status);
  std::string Context() const { return Describe(signature_); }

  bool ended() const { return state_ == State::kEnded; }
  staged::Ring::Slot& slot(int64_t chunk) const { return ring_->slots[static_cast<size_t>(chunk % chunks_.depth())]; }
  Chunk& Of(int64_t chunk) { return in_course_[static_cast<size_t>(chunk % chunks_.depth())]; }
  const Chunk& Of(int64_t chunk) const { return in_course_[static_cast<size_t>(chunk % chunks_.depth())]; }
  device::Gpu& gpu() const { return backend_->rings().gpu(); }

  const std::shared_ptr<Backend> backend_;
  const GpuCall gpu_call_;
  const Call& call_;
  const Signature signature_;
  const Chunks chunks_;
  State state_ = State::kBefore;
  TimePoint start_{};  // set by StartClock, or at the first look
  TimePoint deadline_{};
  std::unique_ptr<staged::Ring> ring_;
  std::byte* areas_ = nullptr;
  std::vector<Chunk> in_course_;       // by slot
  int64_t inward_ = 0;                 // chunks whose shares were given to the GPU to be copied out
  int64_t passed_ = 0;                 // that have been between the hosts, and were given to it to be copied back
  int64_t outward_ = 0;                // that were given to it whole
  std::shared_ptr<Pollable> first_;    // what comes before all chunks
  std::shared_ptr<Pollable> within_;   // the exchange in course within the host: of which chunk, GoesInward says
  std::shared_ptr<Pollable> between_;  // likewise between the hosts: of chunk passed_
  bool waits_for_gpu_ = false;
};

}  // namespace gyre::internal::gpu_hierarchical
