// GPUs by CUDA.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device::cuda {

// How many there are. kUnavailable, with the driver's reason, where CUDA cannot be used: no driver, too old a one, no
// GPU.
absl::StatusOr<int> CountGpus();

// GPU `ordinal` of CountGpus(). Makes its primary context, which takes some 100 ms the first time in a process. Calls
// from a thread whose current GPU is another one make that one's context as well, when they turn back to it: choose the
// GPU (cudaSetDevice) in threads that call often.
absl::StatusOr<std::unique_ptr<Gpu>> OpenGpu(int ordinal);

}  // namespace gyre::device::cuda
