// What libgyre and libgyre_cuda, the module that links CUDA, say to each other beside device::Gpu. The module is loaded
// at the first tensor on a GPU (loader.cc), so that libgyre runs where no CUDA is.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device::cuda {

// The one function that the module exports, as "gyre_cuda_module".
struct Module {
  const char* version;  // of Gyre: must be the caller's

  // As CountGpus and OpenGpu of factory.h.
  absl::StatusOr<int> (*count)();
  absl::StatusOr<std::unique_ptr<Gpu>> (*open)(int ordinal);
};
using GetModule = const Module* (*)();

}  // namespace gyre::device::cuda
