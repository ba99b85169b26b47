// The arithmetic of device/cpu/reduce_kernels-inl.h: sources in their order, half types in float and rounded once.
// Compiled without contraction to fused multiply-add (see CMakeLists.txt), for the CPU's kernels have none.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "device/cuda/element.cuh"
#include "device/cuda/launch.cuh"

namespace gyre::device::cuda {

namespace {

constexpr int kThreads = 256;
// Several times what fits at once (5 to 8, by registers): work is cut alike, and where all blocks do not fit evenly,
// the last ones keep few multiprocessors busy for a short while only.
constexpr int kBlocksPerMultiprocessor = 32;

struct Sum {
  template <typename W>
  static __device__ W Apply(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
      using U = std::make_unsigned_t<W>;  // wraps
      return static_cast<W>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <typename W>
  static __device__ W Apply(W a, W b) {
    if constexpr (std::is_integral_v<W>) {
      return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
// Of a NaN and a number the second is taken, as by the CPU's instructions.
struct Min {
  template <typename W>
  static __device__ W Apply(W a, W b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <typename W>
  static __device__ W Apply(W a, W b) {
    return a > b ? a : b;
  }
};
struct And {
  template <typename W>
  static __device__ W Apply(W a, W b) {
    return a & b;
  }
};
struct Or {
  template <typename W>
  static __device__ W Apply(W a, W b) {
    return a | b;
  }
};

// By one instruction: of an assignment nvcc makes a store for each element.
template <typename P, typename Stored>
__device__ void StorePacket(const P& packet, Stored* to) {
  if constexpr (sizeof(P) == sizeof(uint4)) {
    __stwb(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(packet));
  } else {
    *reinterpret_cast<P*>(to) = packet;
  }
}

// Elements [i, i + kLanes): `load` gives those of a source, `store` takes them for a destination.
template <class E, class Op, bool kScaled, int kLanes>
__device__ void Combine(const Operands& o, int64_t i) {
  using Stored = typename E::Stored;
  using Wide = typename E::Wide;
  using Lanes = Packet<Stored, kLanes>;
  const auto load = [&](int source) {
    return *reinterpret_cast<const Lanes*>(static_cast<const Stored*>(o.sources[source]) + i);
  };
  Wide total[kLanes];
  const Lanes first = load(0);
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    total[lane] = E::Load(first.at[lane]);
    if constexpr (kScaled) total[lane] *= static_cast<Wide>(o.scale_source);
  }
  for (int s = 1; s < o.source_count; ++s) {
    const Lanes next = load(s);
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      Wide value = E::Load(next.at[lane]);
      if constexpr (kScaled) value *= static_cast<Wide>(o.scale_source);
      total[lane] = Op::Apply(total[lane], value);
    }
  }
  Lanes result;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    if constexpr (kScaled) total[lane] *= static_cast<Wide>(o.scale_result);
    if constexpr (std::is_integral_v<Wide>) {
      if (o.divisor != 1) total[lane] = static_cast<Wide>(total[lane] / o.divisor);
    }
    result.at[lane] = E::Store(total[lane]);
  }
  for (int d = 0; d < o.destination_count; ++d) {
    StorePacket(result, static_cast<Stored*>(o.destinations[d]) + i);
  }
}

// `aligned`: all operands begin on multiples of 16 bytes.
template <class E, class Op, bool kScaled>
__global__ void __launch_bounds__(kThreads) ReduceAll(Operands operands, int64_t count, bool aligned) {
  constexpr int kLanes = 16 / sizeof(typename E::Stored);
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t threads = int64_t{gridDim.x} * kThreads;
  const int64_t packets = aligned ? count / kLanes : 0;
  for (int64_t p = thread; p < packets; p += threads) Combine<E, Op, kScaled, kLanes>(operands, p * kLanes);
  for (int64_t i = packets * kLanes + thread; i < count; i += threads) Combine<E, Op, kScaled, 1>(operands, i);
}

struct Launch {
  const Operands& operands;
  int64_t count;
  int multiprocessors;
  cudaStream_t stream;
  bool aligned;

  template <class E, class Op, bool kScaled = false>
  cudaError_t As() const {
    const int64_t lanes = 16 / sizeof(typename E::Stored);
    const int64_t wanted = (count / (aligned ? lanes : 1) + kThreads - 1) / kThreads;
    const auto blocks = std::clamp<int64_t>(wanted, 1, int64_t{multiprocessors} * kBlocksPerMultiprocessor);
    ReduceAll<E, Op, kScaled><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(operands, count, aligned);
    return cudaGetLastError();
  }

  template <class E, class Op>
  cudaError_t ScaledOrNot() const {
    if constexpr (std::is_floating_point_v<typename E::Wide>) {
      if (operands.scale_source != 1.0 || operands.scale_result != 1.0) return As<E, Op, true>();
    }
    return As<E, Op>();
  }

  template <class E>
  cudaError_t Numbers(ReduceOp op) const {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage: return ScaledOrNot<E, Sum>();
      case ReduceOp::kMin: return ScaledOrNot<E, Min>();
      case ReduceOp::kMax: return ScaledOrNot<E, Max>();
      case ReduceOp::kProduct: return ScaledOrNot<E, Product>();
      case ReduceOp::kAdasum: break;  // is not of elements
    }
    return cudaErrorInvalidValue;
  }

  cudaError_t Booleans(ReduceOp op) const {
    const bool conjunction = op == ReduceOp::kMin || op == ReduceOp::kProduct;
    return conjunction ? As<Plain<uint8_t>, And>() : As<Plain<uint8_t>, Or>();
  }
};

bool AllAligned(const Operands& operands) {
  uintptr_t bits = 0;
  for (int s = 0; s < operands.source_count; ++s) bits |= reinterpret_cast<uintptr_t>(operands.sources[s]);
  for (int d = 0; d < operands.destination_count; ++d) bits |= reinterpret_cast<uintptr_t>(operands.destinations[d]);
  return bits % 16 == 0;
}

}  // namespace

cudaError_t LaunchReduce(DType dtype, ReduceOp op, const Operands& operands, int64_t count, int multiprocessors,
                         cudaStream_t stream) {
  if (count <= 0) return cudaSuccess;
  const Launch launch{operands, count, multiprocessors, stream, AllAligned(operands)};
  switch (dtype) {
    case DType::kU8: return launch.Numbers<Plain<uint8_t>>(op);
    case DType::kI8: return launch.Numbers<Plain<int8_t>>(op);
    case DType::kI16: return launch.Numbers<Plain<int16_t>>(op);
    case DType::kU16: return launch.Numbers<Plain<uint16_t>>(op);
    case DType::kI32: return launch.Numbers<Plain<int32_t>>(op);
    case DType::kI64: return launch.Numbers<Plain<int64_t>>(op);
    case DType::kF16: return launch.Numbers<Half>(op);
    case DType::kBF16: return launch.Numbers<Brain>(op);
    case DType::kF32: return launch.Numbers<Plain<float>>(op);
    case DType::kF64: return launch.Numbers<Plain<double>>(op);
    case DType::kBool: return launch.Booleans(op);
  }
  return cudaErrorInvalidValue;
}

}  // namespace gyre::device::cuda
