#include "collectives/gpu_hierarchical/connecting.h"

#include <utility>

#include "collectives/call.h"

namespace gyre::internal::gpu_hierarchical {

Connecting::Connecting(Backend& backend, const GpuCall& call, const Signature& signature)
    : backend_(backend),
      call_(call),
      signature_(signature),
      nothing_(static_cast<size_t>(backend.host().group().size())) {}

void Connecting::Begin() {
  current_ = backend_.within().Make({.call = {.kind = CallKind::kAllGather,
                                              .counts = nothing_,
                                              .timeout = call_.call.timeout,
                                              .part_of = &signature_},
                                     .gpu = call_.gpu});
  current_->StartClock(start_ + kGraceWithinHost);
}

shm::Progress Connecting::Poll() {
  if (current_ == nullptr) Begin();
  const shm::Progress progress = current_->Poll();
  if (progress != shm::Progress::kDone) return progress;
  return OnEnded() ? shm::Progress::kDone : shm::Progress::kSome;
}

bool Connecting::Check(TimePoint now) {
  if (current_ == nullptr) Begin();
  return current_->Check(now) && OnEnded();
}

TimePoint Connecting::deadline() const {
  return current_ != nullptr ? current_->deadline() : DeadlineAfter(start_, *call_.call.timeout);
}

// True: all has.
bool Connecting::OnEnded() {
  const absl::Status status = current_->status();
  if (agreeing_) {
    if (!status.ok()) return End(backend_.Explain(status, Describe(signature_)));
    if (all_ != 0) return End(absl::OkStatus());
    return End(within_.ok() ? absl::UnavailableError("a rank of another host cannot exchange with others there by GPU")
                            : within_);
  }
  const bool could_not = absl::IsUnavailable(status) && backend_.host().group().usable();
  if (!status.ok() && !could_not) return End(backend_.BreakLike(status, Describe(signature_)));
  within_ = status;
  all_ = status.ok() ? 1 : 0;
  agreeing_ = true;
  const TensorView all(&all_, 1, DType::kI64);
  current_ = backend_.host().Make({.kind = CallKind::kAllReduce,
                                   .in = all,
                                   .out = all,
                                   .op = ReduceOp::kMin,
                                   .timeout = call_.call.timeout,
                                   .part_of = &signature_});
  current_->StartClock(start_);
  return false;
}

bool Connecting::End(absl::Status status) {
  status_ = std::move(status);
  return true;
}

}  // namespace gyre::internal::gpu_hierarchical
