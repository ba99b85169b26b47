#include "runtime/gpu_marks.h"

#include "base/status.h"

namespace gyre::internal {

GpuMarks::~GpuMarks() {
  if (output != nullptr && output != input) gpu->DestroyEvent(output);
  if (input != nullptr) gpu->DestroyEvent(input);
}

absl::Status GpuMarks::Make(const Call& call) {
  const bool reads = call.in.device.on_gpu(), writes = call.out.device.on_gpu();
  if (reads) {
    ASSIGN_OR_RETURN(input, gpu->CreateEvent());
    RETURN_IF_ERROR(gpu->Record(input, call.in.device.stream));
  }
  if (!writes) return absl::OkStatus();
  if (reads && call.in.device.stream == call.out.device.stream) {
    output = input;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(output, gpu->CreateEvent());
  return gpu->Record(output, call.out.device.stream);
}

}  // namespace gyre::internal
