// Quantisers: device/kernels/quantize.h, launched.
#include <algorithm>

#include "device/cuda/launch.cuh"
#include "device/cuda/team.cuh"
#include "device/kernels/quantize.h"

namespace gyre::device::cuda {

namespace {

using kernels::Dequantization;
using kernels::Quantization;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kernels::kWarp;
constexpr int kBlocksPerMultiprocessor = 8;

template <class Codec>
__global__ void __launch_bounds__(kThreads) QuantizeBlocks(Quantization q) {
  __shared__ kernels::MeanShared shared[kWarps];
  Warp team;
  const int warp = static_cast<int>(threadIdx.x) / kernels::kWarp;
  kernels::QuantizeShare<Codec>(team, q, int64_t{blockIdx.x} * kWarps + warp, int64_t{gridDim.x} * kWarps,
                                shared[warp]);
}

template <class Codec>
__global__ void __launch_bounds__(kThreads) DequantizeBlocks(Dequantization d) {
  Warp team;
  const int warp = static_cast<int>(threadIdx.x) / kernels::kWarp;
  kernels::DequantizeShare<Codec>(team, d, int64_t{blockIdx.x} * kWarps + warp, int64_t{gridDim.x} * kWarps);
}

template <class Element>
__global__ void __launch_bounds__(kThreads) QuantizeElements(Quantization q) {
  kernels::QuantizeFours<Element>(q, int64_t{blockIdx.x} * kThreads + threadIdx.x, int64_t{gridDim.x} * kThreads);
}

template <class Element>
__global__ void __launch_bounds__(kThreads) DequantizeElements(Dequantization d) {
  kernels::DequantizeFours<Element>(d, int64_t{blockIdx.x} * kThreads + threadIdx.x, int64_t{gridDim.x} * kThreads);
}

struct Launch {
  int64_t count;
  int multiprocessors;
  cudaStream_t stream;

  unsigned Grid(int64_t each) const {
    const int64_t wanted = (count + each - 1) / each;
    return static_cast<unsigned>(std::min<int64_t>(wanted, int64_t{multiprocessors} * kBlocksPerMultiprocessor));
  }

  template <class Codec>
  void Blocks(const Quantization& q) const {
    QuantizeBlocks<Codec><<<Grid(kernels::kBlock * kWarps), kThreads, 0, stream>>>(q);
  }
  template <class Codec>
  void Blocks(const Dequantization& d) const {
    DequantizeBlocks<Codec><<<Grid(kernels::kBlock * kWarps), kThreads, 0, stream>>>(d);
  }
  template <class Element>
  void Elements(const Quantization& q) const {
    QuantizeElements<Element><<<Grid(4 * kThreads), kThreads, 0, stream>>>(q);
  }
  template <class Element>
  void Elements(const Dequantization& d) const {
    DequantizeElements<Element><<<Grid(4 * kThreads), kThreads, 0, stream>>>(d);
  }

  template <class Task>
  cudaError_t As(Quantizer kind, const Task& task) const {
    if (count <= 0) return cudaSuccess;
    switch (kind) {
      case Quantizer::kF32: Elements<kernels::FloatElement>(task); break;
      case Quantizer::kF16: Elements<kernels::HalfElement>(task); break;
      case Quantizer::kBF16: Elements<kernels::BrainElement>(task); break;
      case Quantizer::kFp8E4M3: Blocks<kernels::E4M3Codec>(task); break;
      case Quantizer::kFp8E5M2: Blocks<kernels::E5M2Codec>(task); break;
      case Quantizer::kInt8: Blocks<kernels::Int8Codec>(task); break;
      case Quantizer::kInt4: Blocks<kernels::Int4Codec>(task); break;
      case Quantizer::kSign: Blocks<kernels::SignCodec>(task); break;
      case Quantizer::kTernary: Blocks<kernels::TernaryCodec>(task); break;
    }
    return cudaGetLastError();
  }
};

}  // namespace

cudaError_t LaunchQuantize(Quantizer kind, const Quantization& q, int multiprocessors, cudaStream_t stream) {
  return Launch{q.count, multiprocessors, stream}.As(kind, q);
}

cudaError_t LaunchDequantizeAdd(Quantizer kind, const Dequantization& d, int multiprocessors, cudaStream_t stream) {
  return Launch{d.count, multiprocessors, stream}.As(kind, d);
}

}  // namespace gyre::device::cuda
