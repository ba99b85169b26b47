// One collective by NCCL, from its communicator's turn until it is queued on the GPU: the ranks agree on the call (of
// one host, by its memory; over several, the first call only, which connects), then NCCL is given it in one group.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/gpu_backend.h"
#include "collectives/nccl/backend.h"
#include "collectives/nccl/detour.h"
#include "collectives/nccl/places.h"
#include "collectives/nccl/plan.h"

namespace gyre::internal::nccl {

class Operation final : public Pollable {
 public:
  Operation(std::shared_ptr<Backend> backend, const GpuCall& call);

  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint now) override {
    start_ = now;
    deadline_ = DeadlineAfter(now, *call_.call.timeout);
  }
  TimePoint deadline() const override;
  bool AddWaits(std::vector<pollfd>& waits) const override;

 private:
  enum class State { kBefore, kAgreeing, kConnecting, kLaunching, kInTrouble, kEnded };

  void Begin();
  std::shared_ptr<Pollable> MakeAgreement();
  std::shared_ptr<Pollable> Exchange(bool connects);
  std::shared_ptr<Pollable> Gather(std::span<const int64_t> row);
  void Await(std::shared_ptr<Pollable> agreement);
  Told Tell() const;
  absl::Status TakeRows();
  absl::Status TakeMemory();
  absl::Status TakeWhoHasMemory() const;
  shm::Progress Agree();
  absl::StatusOr<bool> Advance();
  absl::Status Connect();
  absl::Status Launch();
  absl::Status AwaitCaller();
  absl::Status LaunchRound();
  absl::Status EndRound();
  absl::Status Register();
  bool IsRegistered(const void* data) const;
  absl::Status Finish();
  absl::Status HaveCallerWait();
  void BeInTrouble(absl::Status why);
  bool Fail(const Members::Cause& cause);
  bool FailAlone(const absl::Status& why);
  bool FailLate();
  bool End(absl::Status status);
  std::string Context() const;

  Connection& connection() const { return *backend_->connection(); }
  const Members& members() const { return backend_->members(); }
  device::Gpu& gpu() const { return *call_.gpu; }
  device::Gpu::Stream stream() const {
    return call_.manner.capturing ? call_.call.in.device.stream : connection().stream();
  }

  // Null where the call has none: on ranks that are not a reduce's root.
  const void* output() const {
    const bool has = call_.call.kind != CallKind::kReduce || call_.call.root == members().rank();
    return has ? call_.call.out.data : nullptr;
  }

  const std::shared_ptr<Backend> backend_;
  const GpuCall call_;
  const Signature signature_;
  State state_ = State::kBefore;
  TimePoint start_{}, deadline_{};
  UniqueId id_{};  // of a communicator that is yet to be made
  std::shared_ptr<Pollable> agreement_;
  std::vector<int64_t>
      rows_;  // by rank: its id_, if it is yet to be had, Told, an alltoall's counts; then of has_memory_
  Conclusion concluded_;
  std::optional<absl::Status> has_memory_;  // that it needs for the call; null: ranks have not come to ask
  std::byte* scratch_ = nullptr;            // that memory: ScratchBytes, and behind them that of a detour
  Plan plan_;
  int64_t rounds_left_ = 0;  // of a detour, with the one in course
  int64_t round_ = 0;
  DetourRound detour_;    // the round in course
  bool queued_ = false;   // there may be work of this call on the connection's stream
  absl::Status trouble_;  // what NCCL says; whoever is lost has yet to be named
  std::optional<TimePoint> named_by_;
};

}  // namespace gyre::internal::nccl
