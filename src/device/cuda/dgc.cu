// Deep gradient compression: device/kernels/dgc.h, sample.h and select.h, launched.
#include <algorithm>

#include "device/cuda/launch.cuh"
#include "device/cuda/team.cuh"
#include "device/kernels/dgc.h"
#include "device/kernels/sample.h"
#include "device/kernels/select.h"

namespace gyre::device::cuda {

namespace {

using kernels::DgcStep;
using kernels::DgcTable;
using kernels::kTileThreads;

constexpr int kChoosers = 1024;  // threads that look for one tensor's k-th key
constexpr int kWarps = 8;        // of a block whose warps have a tile each
constexpr int kBlocksPerMultiprocessor = 4;
constexpr unsigned kDrawers = 64;  // blocks for each tensor's sample

template <class Element>
__global__ void __launch_bounds__(kTileThreads) Draw(DgcTable table, DgcStep step) {
  kernels::DrawShare<Element>(table, step, blockIdx.x, int64_t{blockIdx.y} * kTileThreads + threadIdx.x,
                              int64_t{gridDim.y} * kTileThreads);
}

__global__ void __launch_bounds__(kChoosers) Threshold(DgcTable table) {
  __shared__ kernels::SelectShared<Block<kChoosers>> shared;
  Block<kChoosers> team;
  kernels::SetThreshold(team, table, blockIdx.x, shared);
}

template <class Element, bool kMomentum>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerMultiprocessor) Accumulate(DgcTable table, DgcStep step) {
  __shared__ kernels::TileShared shared;
  Block<kTileThreads> team;
  kernels::AccumulateTiles<Element, kMomentum>(team, table, step, blockIdx.x, gridDim.x, shared);
}

__global__ void __launch_bounds__(kChoosers) Choose(DgcTable table, DgcStep step) {
  __shared__ kernels::SelectShared<Block<kChoosers>> shared;
  Block<kChoosers> team;
  kernels::ChooseKth(team, table, step, blockIdx.x, shared);
}

__global__ void __launch_bounds__(kTileThreads) Count(DgcTable table, int round) {
  __shared__ kernels::SelectShared<Block<kTileThreads>> shared;
  Block<kTileThreads> team;
  kernels::CountKeys(team, table, round, blockIdx.x, gridDim.x, shared);
}

__global__ void __launch_bounds__(kChoosers) Narrow(DgcTable table) {
  __shared__ kernels::SelectShared<Block<kChoosers>> shared;
  Block<kChoosers> team;
  kernels::NarrowKth(team, table, blockIdx.x, shared);
}

__global__ void __launch_bounds__(kWarps * 32) CountTiles(DgcTable table) {
  Warp team;
  const uint32_t tile = blockIdx.x * kWarps + threadIdx.x / 32;
  if (tile < table.tile_count) kernels::CountKept(team, table, tile);
}

__global__ void __launch_bounds__(kChoosers) Place(DgcTable table) {
  __shared__ kernels::SelectShared<Block<kChoosers>> shared;
  Block<kChoosers> team;
  kernels::PlaceKept(team, table, blockIdx.x, shared);
}

__global__ void __launch_bounds__(kWarps * 32) EmitTiles(DgcTable table, DgcStep step) {
  Warp team;
  const uint32_t tile = blockIdx.x * kWarps + threadIdx.x / 32;
  if (tile < table.tile_count) kernels::EmitKept(team, table, step, tile);
}

template <class Element>
void LaunchPass(const DgcTable& table, const DgcStep& step, unsigned blocks, cudaStream_t stream) {
  if (table.sampled && step.select) {
    Draw<Element><<<dim3(table.tensor_count, kDrawers), kTileThreads, 0, stream>>>(table, step);
    Threshold<<<table.tensor_count, kChoosers, 0, stream>>>(table);
  }
  if (table.momentum) {
    Accumulate<Element, true><<<blocks, kTileThreads, 0, stream>>>(table, step);
  } else {
    Accumulate<Element, false><<<blocks, kTileThreads, 0, stream>>>(table, step);
  }
}

}  // namespace

cudaError_t LaunchSelectLargest(const DgcTable& table, DType gradients, const DgcStep& step, int multiprocessors,
                                cudaStream_t stream) {
  if (table.tile_count == 0) return cudaSuccess;
  const unsigned blocks = std::min(table.tile_count, static_cast<unsigned>(multiprocessors) * kBlocksPerMultiprocessor);
  switch (gradients) {
    case DType::kF16: LaunchPass<kernels::HalfElement>(table, step, blocks, stream); break;
    case DType::kBF16: LaunchPass<kernels::BrainElement>(table, step, blocks, stream); break;
    default: LaunchPass<kernels::FloatElement>(table, step, blocks, stream); break;
  }
  if (!step.select) return cudaGetLastError();
  const unsigned tensors = table.tensor_count, tiles = (table.tile_count + kWarps - 1) / kWarps;
  Choose<<<tensors, kChoosers, 0, stream>>>(table, step);
  for (int round = 0; round < 3; ++round) {
    Count<<<blocks, kTileThreads, 0, stream>>>(table, round);
    Narrow<<<tensors, kChoosers, 0, stream>>>(table);
  }
  CountTiles<<<tiles, kWarps * 32, 0, stream>>>(table);
  Place<<<tensors, kChoosers, 0, stream>>>(table);
  EmitTiles<<<tiles, kWarps * 32, 0, stream>>>(table, step);
  return cudaGetLastError();
}

}  // namespace gyre::device::cuda
