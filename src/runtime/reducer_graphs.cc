// How the steps of a GradientReducer on GPUs come to go by graphs: after the first step by the plan that stays, so that
// everything that they hold was queued once already.
#include <utility>

#include "base/status.h"
#include "runtime/reducer_agreement.h"
#include "runtime/reducer_state.h"

namespace gyre {

// NCCL wants a call to be captured by all ranks or by none, and a graph to be launched by all. So all agree before each
// part that they can, and at the end that they could; on a rank that fails they all go on as before.
absl::Status GradientReducer::State::CaptureGraphs(StepSummary& summary) {
  graphs_due_ = false;
  absl::Status own;
  bool all = true;
  for (const fusion::Part& part : step_->parts()) {
    if (!ranks_->gpu_calls()->captures(step_->CallOn(on_gpu_->BufferOf(part)))) continue;
    auto begun = own.ok() ? on_gpu_->BeginCapture(part) : own;
    own = begun.status();
    ASSIGN_OR_RETURN(all, internal::AllSucceeded(*communicator_, own.ok(), call_options()));
    ++summary.control_messages;
    if (!all) break;
    RETURN_IF_ERROR(CapturePart(part, *begun, own));
  }
  if (all && summary.control_messages > 0) {
    ASSIGN_OR_RETURN(all, internal::AllSucceeded(*communicator_, own.ok(), call_options()));
    ++summary.control_messages;
  }
  if (all) return absl::OkStatus();
  on_gpu_->DropGraphs();
  ranks_->runtime().logger()->warn("gradients on GPUs go without graphs: {}",
                                   own.ok() ? "another rank cannot capture them" : own.ToString());
  return absl::OkStatus();
}

// `own`: what goes wrong here, and leaves the communicator as it is.
absl::Status GradientReducer::State::CapturePart(const fusion::Part& part, fusion::GradientsOnGpu::Capture& capture,
                                                 absl::Status& own) {
  const internal::Call call = step_->CallOn(capture.buffer);
  const auto operation = ranks_->gpu_calls()->Make(
      call, absl::OkStatus(),
      {.graph = std::move(capture.graph), .capturing = true, .same_place = step_->settings().same_place});
  own = ranks_->runtime().progress()->Run(ranks_->owner(), step_->lane(), *operation);
  if (!own.ok() && communicator_->size() > 1) return own;
  if (own.ok()) own = on_gpu_->EndCapture(part);
  return absl::OkStatus();
}

}  // namespace gyre
