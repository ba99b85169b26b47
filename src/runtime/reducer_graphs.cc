// How the steps of a GradientReducer on GPUs come to go by graphs: after the first step by the plan that stays, so that
// everything that they hold was queued once already.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/reducer_agreement.h"
#include "runtime/reducer_state.h"

namespace gyre {

namespace {

std::chrono::milliseconds Until(TimePoint deadline) {
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()),
                  std::chrono::milliseconds(1));
}

}  // namespace

// NCCL wants a call to be captured by all ranks or by none, and a graph to be launched by all. So all agree before each
// part that they can, and at the end that they could; on a rank that fails they all go on as before. While a stream is
// captured nobody waits for other ranks, but NCCL where it has to: what other threads may not do meanwhile is to be
// short.
absl::Status GradientReducer::State::CaptureGraphs(StepSummary& summary) {
  graphs_due_ = false;
  std::vector<const fusion::Part*> parts;
  for (const fusion::Part& part : step_->parts()) {
    if (ranks_->gpu_calls()->captures(step_->CallOn(on_gpu_->BufferOf(part)))) parts.push_back(&part);
  }
  if (parts.empty()) return absl::OkStatus();
  absl::Cleanup drop = [this] { DropGraphs(); };
  const TimePoint deadline = DeadlineAfter(std::chrono::steady_clock::now(), timeout_);
  absl::Status own = TryCaptures(parts);
  for (auto next = parts.begin();; ++next) {
    const fusion::Part& part = next == parts.end() ? *parts.back() : **next;
    const std::string what = absl::StrCat(step_->NameOf(part), ", whose work is captured into CUDA graphs");
    const auto failed = internal::FirstToFail(*communicator_, own.ok(), {.timeout = Until(deadline)});
    if (!failed.ok()) return Annotate(failed.status(), what);
    ++summary.control_messages;
    if (failed->has_value()) {
      ranks_->runtime().logger().Warn(
          absl::StrCat(what, ": gradients go without graphs: ",
                       own.ok() ? absl::StrCat("rank ", **failed, " cannot capture them") : own.ToString()));
      return absl::OkStatus();
    }
    if (next == parts.end()) break;
    const absl::Status captured = CapturePart(part, deadline, own);
    if (!captured.ok()) return Annotate(captured, what);
  }
  std::move(drop).Cancel();
  return absl::OkStatus();
}

// What may take long, and what fails for good: before anything is captured with other ranks.
absl::Status GradientReducer::State::TryCaptures(const std::vector<const fusion::Part*>& parts) {
  graphs_turn_ = ranks_->runtime().gpus().TakeTurnOfGraphs(on_gpu_->own().gpu);
  if (graphs_turn_ == nullptr) return absl::FailedPreconditionError("another reducer has graphs on this GPU");
  for (const fusion::Part* const part : parts) RETURN_IF_ERROR(on_gpu_->TryCapture(*part));
  return absl::OkStatus();
}

// `own`: what goes wrong here, and leaves the communicator as it is. What goes wrong before NCCL has been given the
// call does not: the other ranks' NCCL is in a capture then that this one is not part of.
absl::Status GradientReducer::State::CapturePart(const fusion::Part& part, TimePoint deadline, absl::Status& own) {
  const bool alone = communicator_->size() == 1;
  auto capture = on_gpu_->BeginCapture(part);
  own = capture.status();
  if (!own.ok() && alone) return absl::OkStatus();
  if (!own.ok()) {
    step_->Abandon(absl::StrCat("rank ", communicator_->rank(), " could not capture its graphs: ", own.message()));
    return own;
  }
  internal::Call call = step_->CallOn(capture->buffer);
  call.timeout = Until(deadline);
  const auto operation = ranks_->gpu_calls()->Make(
      call, absl::OkStatus(),
      {.graph = std::move(capture->graph), .capturing = true, .same_place = step_->settings().same_place});
  own = ranks_->runtime().progress()->Run(ranks_->owner(), step_->lane(), *operation);
  if (!own.ok() && !alone) return own;
  if (own.ok()) own = on_gpu_->EndCapture(part);
  return absl::OkStatus();
}

void GradientReducer::State::DropGraphs() {
  on_gpu_->DropGraphs();
  graphs_turn_.reset();
}

}  // namespace gyre
