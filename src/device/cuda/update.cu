// Updates of weights: device/kernels/update.h, launched for several tensors at once.
#include <algorithm>
#include <variant>

#include "device/cuda/launch.cuh"

namespace gyre::device::cuda {

namespace {

using kernels::Weights;

constexpr int kThreads = 256;
// Several times what fits at once (5 to 8, by registers): work is cut alike, and where all blocks do not fit evenly,
// the last ones keep few multiprocessors busy for a short while only.
constexpr int kBlocksPerMultiprocessor = 32;

struct Tensors {
  Weights at[kUpdateBatch];
};
static_assert(sizeof(Tensors) <= 3900);  // a kernel's parameters, with the rule

// A row of blocks for each tensor.
template <class Rule>
__global__ void __launch_bounds__(kThreads) Update(Rule rule, Tensors tensors) {
  kernels::UpdateFours(rule, tensors.at[blockIdx.y], int64_t{blockIdx.x} * kThreads + threadIdx.x,
                       int64_t{gridDim.x} * kThreads);
}

struct Launch {
  const Tensors& tensors;
  dim3 grid;
  cudaStream_t stream;

  template <class Rule>
  void operator()(const Rule& rule) const {
    Update<<<grid, kThreads, 0, stream>>>(rule, tensors);
  }
};

}  // namespace

cudaError_t LaunchUpdate(const UpdateRule& rule, std::span<const Weights> tensors, int multiprocessors,
                         cudaStream_t stream) {
  Tensors batch = {};
  int64_t most = 1;
  for (const Weights& tensor : tensors) most = std::max(most, tensor.count);
  std::copy(tensors.begin(), tensors.end(), batch.at);
  const int64_t wanted = (most + 4 * kThreads - 1) / (4 * kThreads);
  const auto blocks = std::min<int64_t>(wanted, int64_t{multiprocessors} * kBlocksPerMultiprocessor);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(tensors.size()));
  std::visit(Launch{batch, grid, stream}, rule);
  return cudaGetLastError();
}

}  // namespace gyre::device::cuda
