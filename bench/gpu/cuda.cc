#include "gpu/cuda.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"
#include "noise.h"

namespace gyre::bench::gpu {

absl::Status Check(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(std::string(what), ": ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary: return absl::UnavailableError(text);
    case cudaErrorMemoryAllocation: return absl::ResourceExhaustedError(text);
    default: return absl::InternalError(text);
  }
}

absl::StatusOr<int> CountGpus() {
  int count = 0;
  RETURN_IF_ERROR(Check(cudaGetDeviceCount(&count), "looking for GPUs"));
  if (count == 0) return absl::UnavailableError("looking for GPUs: this machine has none");
  return count;
}

absl::StatusOr<int> ChooseGpu(int local_rank) {
  ASSIGN_OR_RETURN(const int count, CountGpus());
  const int ordinal = local_rank % count;
  RETURN_IF_ERROR(Check(cudaSetDevice(ordinal), "choosing the GPU"));
  return ordinal;
}

absl::StatusOr<Memory> Memory::Make(int64_t bytes) {
  Memory memory;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  RETURN_IF_ERROR(Check(cudaMalloc(&memory.data_, size), absl::StrCat(bytes, " bytes on the GPU")));
  return memory;
}

absl::Status FillNormal(void* to, int64_t count, uint64_t seed) {
  constexpr int64_t kDistinct = 1 << 20;
  std::vector<float> values(static_cast<size_t>(std::min(count, kDistinct)));
  bench::FillNormal(values, seed);
  for (int64_t done = 0; done < count; done += kDistinct) {
    const auto bytes = static_cast<size_t>(std::min(count - done, kDistinct)) * sizeof(float);
    RETURN_IF_ERROR(
        Check(cudaMemcpy(static_cast<float*>(to) + done, values.data(), bytes, cudaMemcpyDefault), "filling"));
  }
  return Check(cudaDeviceSynchronize(), "filling");
}

absl::StatusOr<Stream> Stream::Make() {
  Stream made;
  RETURN_IF_ERROR(Check(cudaStreamCreateWithFlags(&made.stream_, cudaStreamNonBlocking), "making a stream"));
  RETURN_IF_ERROR(Check(cudaEventCreate(&made.begin_), "making an event"));
  RETURN_IF_ERROR(Check(cudaEventCreate(&made.end_), "making an event"));
  return made;
}

Stream::~Stream() {
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status Stream::Synchronize() const {
  return Check(cudaStreamSynchronize(stream_), "waiting for a stream");
}

absl::StatusOr<double> Stream::Time(int calls, const std::function<absl::Status()>& body) const {
  RETURN_IF_ERROR(Check(cudaEventRecord(begin_, stream_), "recording an event"));
  for (int i = 0; i < calls; ++i) RETURN_IF_ERROR(body());
  RETURN_IF_ERROR(Check(cudaEventRecord(end_, stream_), "recording an event"));
  RETURN_IF_ERROR(Check(cudaEventSynchronize(end_), "waiting for an event"));
  float milliseconds = 0;
  RETURN_IF_ERROR(Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading a time"));
  return static_cast<double>(milliseconds) * 1e-3 / calls;
}

}  // namespace gyre::bench::gpu
