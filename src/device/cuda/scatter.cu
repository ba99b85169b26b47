// Lists of elements: device/kernels/scatter.h, launched.
#include <algorithm>

#include "device/cuda/launch.cuh"
#include "device/kernels/scatter.h"

namespace gyre::device::cuda {

namespace {

using kernels::ElementList;
using kernels::ReturnedList;

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;

__global__ void __launch_bounds__(kThreads) Put(ElementList list, float* to) {
  kernels::PutShare(list, to, int64_t{blockIdx.x} * kThreads + threadIdx.x, int64_t{gridDim.x} * kThreads);
}

__global__ void __launch_bounds__(kThreads) TakeBack(ReturnedList returned) {
  kernels::TakeBackShare(returned, int64_t{blockIdx.x} * kThreads + threadIdx.x, int64_t{gridDim.x} * kThreads);
}

unsigned Grid(const ElementList& list, int multiprocessors) {
  const int64_t wanted = (list.count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(std::min<int64_t>(wanted, int64_t{multiprocessors} * kBlocksPerMultiprocessor));
}

}  // namespace

cudaError_t LaunchPutElements(const ElementList& list, float* to, int multiprocessors, cudaStream_t stream) {
  if (list.count == 0) return cudaSuccess;
  Put<<<Grid(list, multiprocessors), kThreads, 0, stream>>>(list, to);
  return cudaGetLastError();
}

cudaError_t LaunchTakeBack(const ReturnedList& returned, int multiprocessors, cudaStream_t stream) {
  if (returned.list.count == 0) return cudaSuccess;
  TakeBack<<<Grid(returned.list, multiprocessors), kThreads, 0, stream>>>(returned);
  return cudaGetLastError();
}

}  // namespace gyre::device::cuda
