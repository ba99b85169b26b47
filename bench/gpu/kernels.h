// The runtime's kernels on one GPU, beside copies within its memory that move as many bytes.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace gyre::bench::gpu {

struct KernelOptions {
  int samples = 30;
  std::string only{};  // those that have it in their names
  std::string json{};  // a file; empty: none
};

// No communication: one process. Rates count bytes read and written. First each kernel is run once, and its results set
// against the host's; what is wrong is measured all the same, and ends in kDataLoss with the names.
absl::Status RunKernels(const KernelOptions& options);

}  // namespace gyre::bench::gpu
