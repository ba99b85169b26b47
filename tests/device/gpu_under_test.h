// Which GPUs this build's tests know.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device {

// "fake" or "cuda". kUnavailable, with the reason, where it is not to be had; not where
// libgyre_cuda was built, and does not load.
absl::StatusOr<std::unique_ptr<Gpu>> OpenGpuUnderTest(std::string_view kind);

}  // namespace gyre::device
