// What every call of CUDA's needs: the right GPU for this thread, and its error as a status.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda.h"
#include "cuda_runtime_api.h"
#include "device/gpu.h"
#include "gyre/status_macros.h"

namespace gyre::device::cuda {

// "`what`: <CUDA's text>", with the code that fits.
absl::Status ToStatus(cudaError_t error, std::string_view what);

inline cudaStream_t AsCuda(Gpu::Stream stream) {
  return static_cast<cudaStream_t>(stream);
}

inline cudaEvent_t EventOf(Gpu::Event event) {
  return static_cast<cudaEvent_t>(event);
}

// Makes a GPU this thread's for as long as it lives: CUDA's calls act on the thread's current one, and what the
// program has chosen is not ours to change. Meanwhile no call here spoils a graph that the program captures: none acts
// on what is captured.
class Current {
 public:
  explicit Current(int ordinal);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  absl::Status status() const { return ToStatus(error_, "choosing the GPU"); }

 private:
  int before_ = 0;
  CUcontext context_before_ = nullptr;
  bool changed_ = false;
  cudaStreamCaptureMode capture_ = cudaStreamCaptureModeRelaxed;  // meanwhile the thread's before
  cudaError_t error_;
};

// Does `call` on a GPU.
template <typename Call>
absl::Status On(int ordinal, const Call& call, std::string_view what) {
  const Current current(ordinal);
  RETURN_IF_ERROR(current.status());
  cudaGetLastError();  // an earlier call's, which has been reported: launches ask for theirs
  const cudaError_t error = call();
  cudaGetLastError();  // "not ready" is kept as well
  return ToStatus(error, what);
}

}  // namespace gyre::device::cuda
