// The kernels, as the host launches them. Plain types, for nvcc compiles who implements this, and gpu.cc, which calls
// it, is for the C++ compiler. All return what the launch returned; what fails later shows in later calls.
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "device/gpu.h"
#include "gyre/dtype.h"

namespace gyre::device::cuda {

// A table's parts, on the GPU.
struct Tiles {
  const Segment* segments;
  const Tile* tiles;
  int tile_count;
  DType buffer_dtype;
};

cudaError_t LaunchPack(const Tiles& tiles, void* buffer, float scale, cudaStream_t stream);
cudaError_t LaunchUnpack(const Tiles& tiles, const void* buffer, float scale, cudaStream_t stream);

// Passed to the kernel by value: constant memory, no copy of its own.
struct Operands {
  const void* sources[Gpu::kMaxOperands];
  void* destinations[Gpu::kMaxOperands];
  int source_count;
  int destination_count;
  double scale_source;
  double scale_result;
  int64_t divisor;
};

cudaError_t LaunchReduce(DType dtype, ReduceOp op, const Operands& operands, int64_t count, int multiprocessors,
                         cudaStream_t stream);

cudaError_t LaunchCountNonFinite(const void* data, DType dtype, int64_t count, uint64_t* found, int multiprocessors,
                                 cudaStream_t stream);

}  // namespace gyre::device::cuda
