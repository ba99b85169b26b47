// GPUs by CUDA, through libgyre_cuda.so, which is loaded when either function is called first and lies beside libgyre.
// Both end in kUnimplemented where it cannot be loaded, and say where it was looked for; in kFailedPrecondition where
// it is another Gyre's.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device::cuda {

// How many there are. kUnavailable, with the driver's reason, where CUDA cannot be used: no driver, too old a one, no
// GPU.
absl::StatusOr<int> CountGpus();

// GPU `ordinal` of CountGpus(). Makes its primary context, which takes some 100 ms the first time in a process, and no
// other GPU's.
absl::StatusOr<std::unique_ptr<Gpu>> OpenGpu(int ordinal);

}  // namespace gyre::device::cuda
