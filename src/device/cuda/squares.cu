// Squares are summed up the same way on every GPU: the blocks and threads are as many everywhere, each thread takes
// every kThreads * kSquareParts-th element in order, and a block adds its threads up as a tree.
#include "device/cuda/element.cuh"
#include "device/cuda/launch.cuh"

namespace gyre::device::cuda {

namespace {

constexpr int kThreads = Gpu::kSquareThreads;

template <class E>
__global__ void __launch_bounds__(kThreads) AddSquares(const typename E::Stored* data, int64_t count, double* parts) {
  __shared__ double sums[kThreads];
  double sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    const auto value = static_cast<double>(E::Load(data[i]));
    sum += value * value;
  }
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) parts[blockIdx.x] += sums[0];
}

template <class E>
cudaError_t Launch(const void* data, int64_t count, double* parts, cudaStream_t stream) {
  AddSquares<E><<<Gpu::kSquareParts, kThreads, 0, stream>>>(static_cast<const typename E::Stored*>(data), count, parts);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchAddSquares(const void* data, DType dtype, int64_t count, double* parts, cudaStream_t stream) {
  if (count <= 0) return cudaSuccess;
  switch (dtype) {
    case DType::kF16: return Launch<Half>(data, count, parts, stream);
    case DType::kBF16: return Launch<Brain>(data, count, parts, stream);
    case DType::kF32: return Launch<Plain<float>>(data, count, parts, stream);
    case DType::kF64: return Launch<Plain<double>>(data, count, parts, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace gyre::device::cuda
