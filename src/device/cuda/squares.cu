// Squares are summed up the same way on every GPU: the blocks and threads are as many everywhere, each thread takes
// every kThreads * kSquareParts-th element in order, and a block adds its threads up as a tree.
#include "device/cuda/element.cuh"
#include "device/cuda/launch.cuh"

namespace gyre::device::cuda {

namespace {

constexpr int kThreads = Gpu::kSquareThreads;

template <class E, bool kFiniteOnly>
__global__ void __launch_bounds__(kThreads)
    AddSquares(const typename E::Stored* data, int64_t count, double* parts, unsigned long long* non_finite) {
  __shared__ double sums[kThreads];
  double sum = 0;
  unsigned others = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += int64_t{gridDim.x} * kThreads) {
    const auto value = static_cast<double>(E::Load(data[i]));
    if (kFiniteOnly && !isfinite(value)) {
      ++others;
    } else {
      sum += value * value;
    }
  }
  if (others != 0) atomicAdd(non_finite, static_cast<unsigned long long>(others));
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) parts[blockIdx.x] += sums[0];
}

template <class E>
cudaError_t Launch(const void* data, int64_t count, double* parts, uint64_t* non_finite, cudaStream_t stream) {
  static_assert(sizeof(uint64_t) == sizeof(unsigned long long));
  const auto kernel = non_finite != nullptr ? AddSquares<E, true> : AddSquares<E, false>;
  kernel<<<Gpu::kSquareParts, kThreads, 0, stream>>>(static_cast<const typename E::Stored*>(data), count, parts,
                                                     reinterpret_cast<unsigned long long*>(non_finite));
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchAddSquares(const void* data, DType dtype, int64_t count, double* parts, uint64_t* non_finite,
                             cudaStream_t stream) {
  if (count <= 0) return cudaSuccess;
  switch (dtype) {
    case DType::kF16: return Launch<Half>(data, count, parts, non_finite, stream);
    case DType::kBF16: return Launch<Brain>(data, count, parts, non_finite, stream);
    case DType::kF32: return Launch<Plain<float>>(data, count, parts, non_finite, stream);
    case DType::kF64: return Launch<Plain<double>>(data, count, parts, non_finite, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace gyre::device::cuda
