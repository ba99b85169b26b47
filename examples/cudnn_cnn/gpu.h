// CUDA, cuDNN and cuBLAS as this program uses them: their errors as statuses, what they make with an owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cublas_v2.h"
#include "cuda_runtime_api.h"
#include "cudnn_graph.h"

namespace cudnn_cnn {

// `what`: what was done, for the message. kUnavailable where CUDA finds no GPU or no driver. cuDNN adds what it last
// complained of on this thread.
absl::Status Check(cudaError_t error, std::string_view what);
absl::Status Check(cudnnStatus_t status, std::string_view what);
absl::Status Check(cublasStatus_t status, std::string_view what);

// What a library hands out, given back at the end.
template <auto kDestroy>
struct Destroy {
  template <typename Handle>
  void operator()(Handle handle) const {
    kDestroy(handle);
  }
};
template <typename Handle, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<kDestroy>>;

using OwnedMemory = Owned<void*, cudaFree>;
using OwnedPinned = Owned<void*, cudaFreeHost>;
using OwnedStream = Owned<cudaStream_t, cudaStreamDestroy>;
using OwnedEvent = Owned<cudaEvent_t, cudaEventDestroy>;
using OwnedDnn = Owned<cudnnHandle_t, cudnnDestroy>;
using OwnedBlas = Owned<cublasHandle_t, cublasDestroy_v2>;

// Memory of the current GPU, zeroed; what is queued on any stream later finds it so.
absl::StatusOr<OwnedMemory> AllocateBytes(int64_t bytes);
template <typename T>
absl::Status Allocate(int64_t count, OwnedMemory& memory, T*& data) {
  absl::StatusOr<OwnedMemory> made = AllocateBytes(count * static_cast<int64_t>(sizeof(T)));
  if (!made.ok()) return made.status();
  memory = *std::move(made);
  data = static_cast<T*>(memory.get());
  return absl::OkStatus();
}

// A GPU, this thread's current one from then on, and what this program does on it.
struct Gpu {
  int ordinal = -1;
  std::string name{};
  OwnedStream stream{};  // all computation's
  OwnedDnn dnn{};
  OwnedBlas blas{};
};

// At least 1. kUnavailable, with CUDA's reason, where there is none.
absl::StatusOr<int> CountGpus();

// Number `local_rank` modulo how many there are.
absl::StatusOr<Gpu> OpenGpu(int local_rank);

}  // namespace cudnn_cnn
