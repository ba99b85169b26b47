// What every call of CUDA's needs: the right GPU for this thread, and its error as a status.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"
#include "device/cuda_context/current.h"
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

// Does `call` on a GPU.
template <typename Call>
absl::Status On(const PrimaryContext& gpu, const Call& call, std::string_view what) {
  const Current current(gpu);
  RETURN_IF_ERROR(current.status());
  cudaGetLastError();  // an earlier call's, which has been reported: launches ask for theirs
  const cudaError_t error = call();
  cudaGetLastError();  // "not ready" is kept as well
  return ToStatus(error, what);
}

// The same for what gives things back, and so has nobody to tell: where the GPU cannot be chosen, they have gone with
// it, and a call on another one would make a context there.
template <typename Call>
void GiveBack(const PrimaryContext& gpu, const Call& call) {
  const Current current(gpu);
  if (current.status().ok()) call();
}

}  // namespace gyre::device::cuda
