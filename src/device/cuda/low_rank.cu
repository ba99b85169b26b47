// PowerSGD's passes: device/kernels/low_rank.h, launched for several matrices at once.
#include <algorithm>

#include "device/cuda/launch.cuh"
#include "device/cuda/team.cuh"
#include "device/kernels/low_rank.h"

namespace gyre::device::cuda {

namespace {

using kernels::kLowRankThreads;
using kernels::LowRankMatrix;
using kernels::LowRankPass;

constexpr int kBlocksPerMultiprocessor = 8;

struct Matrices {
  LowRankMatrix at[kTaskBatch];
};
static_assert(sizeof(Matrices) <= 4000);  // a kernel's parameters

// Each with a row of blocks for each matrix.

__global__ void __launch_bounds__(kLowRankThreads) MakeP(Matrices matrices) {
  __shared__ kernels::DotShared shared;
  Block<kLowRankThreads> team;
  kernels::MakePShare(team, matrices.at[blockIdx.y], blockIdx.x, gridDim.x, shared);
}

__global__ void __launch_bounds__(kLowRankThreads) AddUpP(Matrices matrices) {
  kernels::AddUpP(matrices.at[blockIdx.y], int64_t{blockIdx.x} * kLowRankThreads + threadIdx.x,
                  int64_t{gridDim.x} * kLowRankThreads);
}

__global__ void __launch_bounds__(kLowRankThreads) MakeQ(Matrices matrices) {
  __shared__ kernels::ColumnsShared shared;
  Block<kLowRankThreads> team;
  kernels::MakeQShare(team, matrices.at[blockIdx.y], blockIdx.x, gridDim.x, shared);
}

__global__ void __launch_bounds__(kLowRankThreads) AddUpQ(Matrices matrices) {
  kernels::AddUpQ(matrices.at[blockIdx.y], int64_t{blockIdx.x} * kLowRankThreads + threadIdx.x,
                  int64_t{gridDim.x} * kLowRankThreads);
}

__global__ void __launch_bounds__(kLowRankThreads) Finish(Matrices matrices) {
  __shared__ kernels::FinishShared shared;
  Block<kLowRankThreads> team;
  kernels::FinishShare(team, matrices.at[blockIdx.y], blockIdx.x, gridDim.x, shared);
}

// As many blocks as the matrix with the most work has, by `blocks_of`, for each.
template <class BlocksOf>
dim3 Grid(std::span<const LowRankMatrix> matrices, int multiprocessors, const BlocksOf& blocks_of) {
  int64_t most = 1;
  for (const LowRankMatrix& m : matrices) most = std::max<int64_t>(most, blocks_of(m));
  most = std::min<int64_t>(most, int64_t{multiprocessors} * kBlocksPerMultiprocessor);
  return dim3(static_cast<unsigned>(most), static_cast<unsigned>(matrices.size()));
}

}  // namespace

cudaError_t LaunchLowRank(LowRankPass pass, std::span<const LowRankMatrix> matrices, int multiprocessors,
                          cudaStream_t stream) {
  Matrices batch = {};
  std::copy(matrices.begin(), matrices.end(), batch.at);
  const auto grid = [&](const auto& blocks_of) { return Grid(matrices, multiprocessors, blocks_of); };
  const auto sums_of = [](int64_t count) { return kernels::CountPieces(count, kLowRankThreads); };
  switch (pass) {
    case LowRankPass::kMakeP: {
      const dim3 tiles = grid([](const LowRankMatrix& m) { return kernels::MakePTiles(m); });
      const dim3 sums = grid([&](const LowRankMatrix& m) { return sums_of(m.rows * m.rank); });
      MakeP<<<tiles, kLowRankThreads, 0, stream>>>(batch);
      AddUpP<<<sums, kLowRankThreads, 0, stream>>>(batch);
      break;
    }
    case LowRankPass::kMakeQ: {
      const dim3 tiles = grid([](const LowRankMatrix& m) { return kernels::MakeQTiles(m); });
      const dim3 sums = grid([&](const LowRankMatrix& m) { return sums_of(m.columns * m.rank); });
      MakeQ<<<tiles, kLowRankThreads, 0, stream>>>(batch);
      AddUpQ<<<sums, kLowRankThreads, 0, stream>>>(batch);
      break;
    }
    case LowRankPass::kFinish: {
      const dim3 tiles = grid([](const LowRankMatrix& m) { return kernels::FinishTiles(m); });
      Finish<<<tiles, kLowRankThreads, 0, stream>>>(batch);
      break;
    }
  }
  return cudaGetLastError();
}

}  // namespace gyre::device::cuda
