// What libgyre_cuda.so is made of, seen from within it. See factory.h for what these two promise.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device::cuda {

absl::StatusOr<int> CountCudaGpus();
absl::StatusOr<std::unique_ptr<Gpu>> OpenCudaGpu(int ordinal);

}  // namespace gyre::device::cuda
