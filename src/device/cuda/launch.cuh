// The kernels, as the host launches them. Plain types, for nvcc compiles who implements this, and gpu.cc, which calls
// it, is for the C++ compiler. All return what the launch returned; what fails later shows in later calls.
#pragma once

#include <cstdint>
#include <span>

#include "cuda_runtime_api.h"
#include "device/gpu.h"
#include "device/gpu_codecs.h"
#include "device/gpu_update.h"
#include "device/kernels/dgc.h"
#include "device/kernels/low_rank.h"
#include "device/kernels/quantize.h"
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

// One of these launches, as a node of a graph.
struct PackNode {
  cudaGraphNode_t node;
  bool unpacks;
  void* buffer;
  float scale;
};

// It goes by these tiles from now on; at least one.
cudaError_t SetTiles(cudaGraphExec_t graph, const PackNode& pack, const Tiles& tiles);

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

cudaError_t LaunchAddSquares(const void* data, DType dtype, int64_t count, double* parts, uint64_t* non_finite,
                             cudaStream_t stream);

cudaError_t LaunchSelectLargest(const kernels::DgcTable& table, DType gradients, const kernels::DgcStep& step,
                                int multiprocessors, cudaStream_t stream);

cudaError_t LaunchQuantize(Quantizer kind, const kernels::Quantization& q, int multiprocessors, cudaStream_t stream);
cudaError_t LaunchDequantizeAdd(Quantizer kind, const kernels::Dequantization& d, int multiprocessors,
                                cudaStream_t stream);

// At most kUpdateBatch at once: they are passed to the kernel by value.
constexpr int kUpdateBatch = 96;
cudaError_t LaunchUpdate(const UpdateRule& rule, std::span<const kernels::Weights> tensors, int multiprocessors,
                         cudaStream_t stream);

// At most kTaskBatch at once: they are passed to the kernel by value.
constexpr int kTaskBatch = 48;
cudaError_t LaunchEncodeSparse(std::span<const kernels::SparseEncoding> tensors, kernels::SparseValues values,
                               cudaStream_t stream);
cudaError_t LaunchDecodeAddSparse(std::span<const kernels::SparseDecoding> payloads, cudaStream_t stream);

cudaError_t LaunchTakeRandom(const kernels::RandomChoice& choice, float* values, float* to, int multiprocessors,
                             cudaStream_t stream);
cudaError_t LaunchAddRandom(const kernels::RandomChoice& choice, const float* from, float scale, float* sum,
                            int multiprocessors, cudaStream_t stream);

cudaError_t LaunchPutElements(const kernels::ElementList& list, float* to, int multiprocessors, cudaStream_t stream);
cudaError_t LaunchTakeBack(const kernels::ReturnedList& returned, int multiprocessors, cudaStream_t stream);

// Likewise at most kTaskBatch.
cudaError_t LaunchLowRank(kernels::LowRankPass pass, std::span<const kernels::LowRankMatrix> matrices,
                          int multiprocessors, cudaStream_t stream);

}  // namespace gyre::device::cuda
