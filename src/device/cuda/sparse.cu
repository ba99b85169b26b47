// Sparse payloads: device/kernels/sparse.h and sparse_decode.h, launched. A block of threads for each chunk of each
// tensor.
#include <algorithm>

#include "device/cuda/launch.cuh"
#include "device/cuda/team.cuh"
#include "device/kernels/sparse_decode.h"

namespace gyre::device::cuda {

namespace {

using kernels::SparseDecoding;
using kernels::SparseEncoding;

constexpr int kThreads = 512;

template <typename Task>
struct Tasks {
  Task at[kTaskBatch];
};
static_assert(sizeof(Tasks<SparseEncoding>) <= 4000 && sizeof(Tasks<SparseDecoding>) <= 4000);  // a kernel's parameters

__global__ void __launch_bounds__(kThreads) Encode(Tasks<SparseEncoding> tasks, kernels::SparseValues values) {
  __shared__ kernels::EncodeShared<Block<kThreads>> shared;
  Block<kThreads> team;
  kernels::EncodeChunk(team, tasks.at[blockIdx.y], values, blockIdx.x, shared);
}

__global__ void __launch_bounds__(kThreads) Check(Tasks<SparseDecoding> tasks) {
  __shared__ kernels::DecodeShared<Block<kThreads>> shared;
  Block<kThreads> team;
  kernels::CheckChunk(team, tasks.at[blockIdx.y], blockIdx.x, shared);
}

__global__ void __launch_bounds__(kThreads) Add(Tasks<SparseDecoding> tasks) {
  __shared__ kernels::DecodeShared<Block<kThreads>> shared;
  Block<kThreads> team;
  kernels::AddChunk(team, tasks.at[blockIdx.y], blockIdx.x, shared);
}

// The tasks, and the blocks that the largest of their tensors needs.
template <typename Task>
dim3 Fill(std::span<const Task> from, Tasks<Task>& tasks) {
  int64_t most = 1;
  for (const Task& task : from) most = std::max(most, task.count);
  std::copy(from.begin(), from.end(), tasks.at);
  const int64_t chunks = (most + kernels::kChunkElements - 1) / kernels::kChunkElements;
  return dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(from.size()));
}

}  // namespace

cudaError_t LaunchEncodeSparse(std::span<const SparseEncoding> tensors, kernels::SparseValues values,
                               cudaStream_t stream) {
  Tasks<SparseEncoding> tasks = {};
  const dim3 grid = Fill(tensors, tasks);
  Encode<<<grid, kThreads, 0, stream>>>(tasks, values);
  return cudaGetLastError();
}

cudaError_t LaunchDecodeAddSparse(std::span<const SparseDecoding> payloads, cudaStream_t stream) {
  Tasks<SparseDecoding> tasks = {};
  const dim3 grid = Fill(payloads, tasks);
  Check<<<grid, kThreads, 0, stream>>>(tasks);
  Add<<<grid, kThreads, 0, stream>>>(tasks);
  return cudaGetLastError();
}

}  // namespace gyre::device::cuda
