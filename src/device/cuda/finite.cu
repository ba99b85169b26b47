// A gradient that overflowed anywhere must be found without reading the counter back: it stays on the GPU.
#include <algorithm>

#include "device/cuda/element.cuh"
#include "device/cuda/launch.cuh"

namespace gyre::device::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;

// All ones in the exponent: infinity or NaN.
template <typename Bits, Bits kExponent>
struct NonFinite {
  using Stored = Bits;
  static __device__ bool Is(Bits bits) { return (bits & kExponent) == kExponent; }
};

template <class Test>
__global__ void __launch_bounds__(kThreads)
    Count(const typename Test::Stored* data, int64_t count, unsigned long long* found) {
  using Stored = typename Test::Stored;
  constexpr int kLanes = 16 / sizeof(Stored);
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t threads = int64_t{gridDim.x} * kThreads;
  unsigned mine = 0;  // 2^32 non-finite elements in one thread would take 2^32 elements a thread
  const int64_t packets = Aligned(data, 16) ? count / kLanes : 0;
  for (int64_t p = thread; p < packets; p += threads) {
    const auto packet = reinterpret_cast<const Packet<Stored, kLanes>*>(data)[p];
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) mine += Test::Is(packet.at[lane]);
  }
  for (int64_t i = packets * kLanes + thread; i < count; i += threads) mine += Test::Is(data[i]);
  const unsigned warp = __reduce_add_sync(0xffffffffu, mine);
  if (threadIdx.x % 32 == 0 && warp != 0) atomicAdd(found, static_cast<unsigned long long>(warp));
}

template <class Test>
cudaError_t Launch(const void* data, int64_t count, uint64_t* found, int multiprocessors, cudaStream_t stream) {
  const int64_t wanted = (count / 4 + kThreads - 1) / kThreads;
  const auto blocks = std::clamp<int64_t>(wanted, 1, int64_t{multiprocessors} * kBlocksPerMultiprocessor);
  static_assert(sizeof(uint64_t) == sizeof(unsigned long long));
  Count<Test><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<const typename Test::Stored*>(data), count, reinterpret_cast<unsigned long long*>(found));
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchCountNonFinite(const void* data, DType dtype, int64_t count, uint64_t* found, int multiprocessors,
                                 cudaStream_t stream) {
  if (count <= 0) return cudaSuccess;
  switch (dtype) {
    case DType::kF16: return Launch<NonFinite<uint16_t, 0x7c00>>(data, count, found, multiprocessors, stream);
    case DType::kBF16: return Launch<NonFinite<uint16_t, 0x7f80>>(data, count, found, multiprocessors, stream);
    case DType::kF32: return Launch<NonFinite<uint32_t, 0x7f800000>>(data, count, found, multiprocessors, stream);
    case DType::kF64:
      return Launch<NonFinite<uint64_t, 0x7ff0000000000000>>(data, count, found, multiprocessors, stream);
    default: return cudaSuccess;
  }
}

}  // namespace gyre::device::cuda
