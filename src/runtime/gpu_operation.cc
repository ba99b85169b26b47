#include "runtime/gpu_operation.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

Call WithOwnCounts(Call call, std::span<const int64_t> counts, std::span<const int64_t> receive_counts) {
  call.counts = counts;
  call.receive_counts = receive_counts;
  return call;
}

}  // namespace

GpuOperation::GpuOperation(std::shared_ptr<GpuCalls> calls, const Call& call, GpuManner manner,
                           std::unique_ptr<GpuMarks> marks, OpenedGpu gpu, absl::Status refused)
    : calls_(std::move(calls)),
      counts_(call.counts.begin(), call.counts.end()),
      receive_counts_(call.receive_counts.begin(), call.receive_counts.end()),
      call_(WithOwnCounts(call, counts_, receive_counts_)),
      signature_(SignatureOf(call_)),
      manner_(std::move(manner)),
      marks_(std::move(marks)),
      gpu_(std::move(gpu)),
      refused_(std::move(refused)) {}

void GpuOperation::StartClock(TimePoint now) {
  start_ = now;
  deadline_ = DeadlineAfter(now, *call_.timeout);
  NoteDeadline();
}

void GpuOperation::NoteDeadline() {
  const TimePoint at = current_ != nullptr ? current_->deadline() : deadline_;
  look_at_.store(at.time_since_epoch().count(), std::memory_order_relaxed);
}

shm::Progress GpuOperation::Poll() {
  if (!ended_ && current_ == nullptr) Begin();
  if (ended_) return shm::Progress::kDone;
  const shm::Progress progress = current_->Poll();
  if (progress == shm::Progress::kNone) NoteDeadline();
  if (progress != shm::Progress::kDone) return progress;
  return OnEnded() ? shm::Progress::kDone : shm::Progress::kSome;
}

void GpuOperation::Begin() {
  if (start_ == TimePoint{}) StartClock(std::chrono::steady_clock::now());
  const HostCalls& host = calls_->host();
  if (host.group().node().closed()) {
    End(absl::FailedPreconditionError("the runtime was shut down"));
  } else if (const absl::Status broken = host.group().status(); !broken.ok()) {
    const bool untold = host.team() != nullptr && !host.team()->told();
    const auto cause = untold ? host.FindCause(Context()) : std::nullopt;
    End(cause ? *cause
              : absl::FailedPreconditionError(absl::StrCat("the communicator is unusable: ", broken.message())));
  } else if (!refused_.ok()) {
    Follow(host.MakeRefusal(call_, refused_));
  } else if (call_.kind == CallKind::kMessage || calls_->has_chosen()) {
    OnEnded();
  } else {
    Offer();
  }
}

void GpuOperation::Offer() {
  offering_ = true;
  const auto size = static_cast<size_t>(calls_->host().size()), rank = static_cast<size_t>(calls_->host().rank());
  offers_.resize(size);
  offers_[rank] = calls_->Offer(*gpu_.gpu);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(GpuOffer));
  const RankCounts counts(size, kBytes);
  Follow(calls_->host().Make({.kind = CallKind::kAllGather,
                              .in = {&offers_[rank], kBytes, DType::kU8},
                              .out = {offers_.data(), kBytes * calls_->host().size(), DType::kU8},
                              .counts = counts,
                              .timeout = call_.timeout,
                              .part_of = &signature_}));
}

void GpuOperation::Follow(std::shared_ptr<Pollable> operation) {
  current_ = std::move(operation);
  current_->StartClock(start_);
}

// The operation in course has ended, or there was none to wait for. True: and with it all.
bool GpuOperation::OnEnded() {
  if (current_ != nullptr && !offering_ && absl::IsUnavailable(current_->status()) &&
      call_.kind != CallKind::kMessage && calls_->GoOnStaged(current_->status())) {
    FollowBackend();
    return false;
  }
  if (current_ != nullptr && (!offering_ || !current_->status().ok())) return End(current_->status());
  if (offering_) {
    offering_ = false;
    calls_->Choose(offers_, gpu_);
  }
  FollowBackend();
  return false;
}

void GpuOperation::FollowBackend() {
  Follow(calls_->BackendOf(call_).Make({.call = call_,
                                        .gpu = gpu_.gpu,
                                        .input_ready = marks_->input,
                                        .output_ready = marks_->output,
                                        .manner = manner_}));
}

bool GpuOperation::Check(TimePoint now) {
  if (ended_) return true;
  if (start_ == TimePoint{}) StartClock(now);
  if (current_ != nullptr) return current_->Check(now) && OnEnded();
  if (auto cause = calls_->host().FindCause(Context()); cause) return End(*std::move(cause));
  if (now < deadline_) return false;
  return End(calls_->host().GiveUp(
      absl::DeadlineExceededError(absl::StrFormat("%s timed out after %.3g s: it had not begun", Context(),
                                                  std::chrono::duration<double>(*call_.timeout).count()))));
}

bool GpuOperation::End(absl::Status status) {
  status_ = std::move(status);
  ended_ = true;
  return true;
}

}  // namespace gyre::internal
