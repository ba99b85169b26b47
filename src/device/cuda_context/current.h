// The right GPU for CUDA's calls on this thread, by contexts of the driver's. The runtime's own way, cudaSetDevice,
// cannot be taken back on a thread that has no GPU yet: such threads would stay on ours, and calls that come before it,
// or restore GPU 0 behind it, make a context there, of some 500 MB in every process.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda.h"
#include "cuda_runtime_api.h"

namespace gyre::device::cuda {

// A GPU's primary context, which the runtime uses as well. It is the process's and is never given back.
struct PrimaryContext {
  int ordinal = 0;
  CUcontext context = nullptr;
};

// Makes it where the process has none there yet. With the driver's words: kUnavailable where there is no driver or no
// such GPU, kResourceExhausted, or kInternal.
absl::StatusOr<PrimaryContext> OpenPrimaryContext(int ordinal);

// Makes a GPU this thread's for as long as it lives: what the program has chosen, or has not, is not ours to change.
// Meanwhile no call here spoils a graph that the program captures: none acts on what is captured. Cheap where the GPU
// is the thread's already.
class Current {
 public:
  explicit Current(const PrimaryContext& gpu);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  absl::Status status() const;

 private:
  CUresult result_;
  bool pushed_ = false;
  cudaStreamCaptureMode capture_ = cudaStreamCaptureModeRelaxed;  // meanwhile the thread's before
};

}  // namespace gyre::device::cuda
