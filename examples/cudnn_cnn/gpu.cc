#include "gpu.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"

namespace cudnn_cnn {

namespace {

std::string ErrorText(std::string_view what, std::string_view why) {
  return absl::StrCat(std::string(what), ": ", std::string(why));
}

}  // namespace

absl::Status Check(cudaError_t error, std::string_view what) {
  switch (error) {
    case cudaSuccess: return absl::OkStatus();
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary: return absl::UnavailableError(ErrorText(what, cudaGetErrorString(error)));
    case cudaErrorMemoryAllocation: return absl::ResourceExhaustedError(ErrorText(what, cudaGetErrorString(error)));
    default: return absl::InternalError(ErrorText(what, cudaGetErrorString(error)));
  }
}

absl::Status Check(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  std::array<char, 1024> why{};
  cudnnGetLastErrorString(why.data(), why.size());
  why.back() = 0;
  return absl::InternalError(
      ErrorText(what, absl::StrCat("cuDNN: ", cudnnGetErrorString(status), why[0] == 0 ? "" : ": ", why.data())));
}

absl::Status Check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(ErrorText(what, absl::StrCat("cuBLAS: ", cublasGetStatusString(status))));
}

absl::StatusOr<OwnedMemory> AllocateBytes(int64_t bytes) {
  void* memory = nullptr;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  RETURN_IF_ERROR(Check(cudaMalloc(&memory, size), absl::StrCat(bytes, " bytes on the GPU")));
  OwnedMemory owned(memory);
  RETURN_IF_ERROR(Check(cudaMemset(memory, 0, size), "clearing memory"));
  RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "clearing memory"));
  return owned;
}

absl::StatusOr<int> CountGpus() {
  int count = 0;
  RETURN_IF_ERROR(Check(cudaGetDeviceCount(&count), "looking for GPUs"));
  if (count == 0) return absl::UnavailableError("looking for GPUs: this machine has none");
  return count;
}

absl::StatusOr<Gpu> OpenGpu(int local_rank) {
  ASSIGN_OR_RETURN(const int count, CountGpus());
  Gpu gpu;
  gpu.ordinal = local_rank % count;
  RETURN_IF_ERROR(Check(cudaSetDevice(gpu.ordinal), "choosing the GPU"));
  cudaDeviceProp properties;
  RETURN_IF_ERROR(Check(cudaGetDeviceProperties(&properties, gpu.ordinal), "asking what the GPU is"));
  gpu.name = properties.name;
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  gpu.stream.reset(stream);
  cudnnHandle_t dnn = nullptr;
  RETURN_IF_ERROR(Check(cudnnCreate(&dnn), "starting cuDNN"));
  gpu.dnn.reset(dnn);
  RETURN_IF_ERROR(Check(cudnnSetStream(dnn, stream), "giving cuDNN a stream"));
  cublasHandle_t blas = nullptr;
  RETURN_IF_ERROR(Check(cublasCreate_v2(&blas), "starting cuBLAS"));
  gpu.blas.reset(blas);
  RETURN_IF_ERROR(Check(cublasSetStream_v2(blas, stream), "giving cuBLAS a stream"));
  return gpu;
}

}  // namespace cudnn_cnn
