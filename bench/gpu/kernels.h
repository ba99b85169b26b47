// The runtime's kernels on one GPU, beside copies within its memory that move as many bytes.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace gyre::bench::gpu {

struct KernelOptions {
  int samples = 30;
  std::string json{};  // a file; empty: none
};

// No communication: one process. Rates count bytes read and written.
absl::Status RunKernels(const KernelOptions& options);

}  // namespace gyre::bench::gpu
