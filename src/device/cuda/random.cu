// Random codecs: device/kernels/random.h, launched.
#include <algorithm>

#include "device/cuda/launch.cuh"
#include "device/kernels/random.h"

namespace gyre::device::cuda {

namespace {

using kernels::RandomChoice;

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;

__global__ void __launch_bounds__(kThreads) Take(RandomChoice choice, float* values, float* to) {
  kernels::TakeShare(choice, values, to, int64_t{blockIdx.x} * kThreads + threadIdx.x, int64_t{gridDim.x} * kThreads);
}

__global__ void __launch_bounds__(kThreads) Add(RandomChoice choice, const float* from, float scale, float* sum) {
  kernels::AddShare(choice, from, scale, sum, int64_t{blockIdx.x} * kThreads + threadIdx.x,
                    int64_t{gridDim.x} * kThreads);
}

unsigned Grid(const RandomChoice& choice, int multiprocessors) {
  const int64_t wanted = (choice.chosen + kThreads - 1) / kThreads;
  return static_cast<unsigned>(std::min<int64_t>(wanted, int64_t{multiprocessors} * kBlocksPerMultiprocessor));
}

}  // namespace

cudaError_t LaunchTakeRandom(const RandomChoice& choice, float* values, float* to, int multiprocessors,
                             cudaStream_t stream) {
  if (choice.chosen == 0) return cudaSuccess;
  Take<<<Grid(choice, multiprocessors), kThreads, 0, stream>>>(choice, values, to);
  return cudaGetLastError();
}

cudaError_t LaunchAddRandom(const RandomChoice& choice, const float* from, float scale, float* sum, int multiprocessors,
                            cudaStream_t stream) {
  if (choice.chosen == 0) return cudaSuccess;
  Add<<<Grid(choice, multiprocessors), kThreads, 0, stream>>>(choice, from, scale, sum);
  return cudaGetLastError();
}

}  // namespace gyre::device::cuda
