// Which GPUs this build's tests know.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device {

// "fake" or "cuda". kUnavailable, with the reason, where it is not to be had, for which tests are skipped; not where
// libgyre_cuda was built, and does not load, nor where GYRE_TEST_NEEDS_GPU says that there is a GPU (scripts/test-gpu).
absl::StatusOr<std::unique_ptr<Gpu>> OpenGpuUnderTest(std::string_view kind);

}  // namespace gyre::device
