// One block of threads for each tile; see pack_table.h.
#include "device/cuda/element.cuh"
#include "device/cuda/launch.cuh"

namespace gyre::device::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;  // loads of a thread before the first of them is used

// to[i] = scale * from[i] for all of a tile's elements. Packets of 16 bytes of the wider type.
template <class From, class To>
__device__ void Convert(const typename From::Stored* from, typename To::Stored* to, int count, float scale) {
  using F = typename From::Stored;
  using T = typename To::Stored;
  constexpr int kLanes = 16 / (sizeof(F) > sizeof(T) ? sizeof(F) : sizeof(T));
  using Source = Packet<F, kLanes>;
  using Target = Packet<T, kLanes>;
  const auto convert = [scale](F stored) { return To::Store(__fmul_rn(From::Load(stored), scale)); };
  int done = 0;
  if (Aligned(from, sizeof(Source)) && Aligned(to, sizeof(Target))) {
    const auto* sources = reinterpret_cast<const Source*>(from);
    auto* targets = reinterpret_cast<Target*>(to);
    const int packets = count / kLanes;
    for (int first = static_cast<int>(threadIdx.x); first < packets; first += kThreads * kInFlight) {
      Source loaded[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (first + k * kThreads < packets) loaded[k] = sources[first + k * kThreads];
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (first + k * kThreads >= packets) break;
        Target converted;
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) converted.at[lane] = convert(loaded[k].at[lane]);
        targets[first + k * kThreads] = converted;
      }
    }
    done = packets * kLanes;
  }
  for (int i = done + static_cast<int>(threadIdx.x); i < count; i += kThreads) to[i] = convert(from[i]);
}

// As it is. Units of 16 bytes where both sides allow it.
__device__ void CopyBytes(const char* from, char* to, int64_t bytes) {
  int64_t done = 0;
  if (Aligned(from, 16) && Aligned(to, 16)) {
    const auto* sources = reinterpret_cast<const uint4*>(from);
    auto* targets = reinterpret_cast<uint4*>(to);
    const int packets = static_cast<int>(bytes / 16);
    for (int first = static_cast<int>(threadIdx.x); first < packets; first += kThreads * kInFlight) {
      uint4 loaded[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (first + k * kThreads < packets) loaded[k] = sources[first + k * kThreads];
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (first + k * kThreads < packets) targets[first + k * kThreads] = loaded[k];
      }
    }
    done = int64_t{packets} * 16;
  }
  for (int64_t i = done + threadIdx.x; i < bytes; i += kThreads) to[i] = from[i];
}

template <class From>
__device__ void ConvertTo(DType dtype, const void* from, void* to, int64_t at, int count, float scale) {
  const auto* source = static_cast<const typename From::Stored*>(from);
  switch (dtype) {
    case DType::kF16: return Convert<From, Half>(source, static_cast<uint16_t*>(to) + at, count, scale);
    case DType::kBF16: return Convert<From, Brain>(source, static_cast<uint16_t*>(to) + at, count, scale);
    default: return Convert<From, Plain<float>>(source, static_cast<float*>(to) + at, count, scale);
  }
}

__device__ int64_t Size(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
    case DType::kBool: return 1;
    case DType::kI16:
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kI64:
    case DType::kF64: return 8;
    default: return 4;
  }
}

// `count` elements of `from`, the first of them number `from_at`, to `to` from number `to_at` on.
__device__ void Move(DType from_dtype, const void* from, int64_t from_at, DType to_dtype, void* to, int64_t to_at,
                     int count, float scale) {
  const char* source = static_cast<const char*>(from) + from_at * Size(from_dtype);
  if (from_dtype == to_dtype && scale == 1.0f) {
    const int64_t size = Size(to_dtype);
    return CopyBytes(source, static_cast<char*>(to) + to_at * size, count * size);
  }
  switch (from_dtype) {
    case DType::kF16: return ConvertTo<Half>(to_dtype, source, to, to_at, count, scale);
    case DType::kBF16: return ConvertTo<Brain>(to_dtype, source, to, to_at, count, scale);
    default: return ConvertTo<Plain<float>>(to_dtype, source, to, to_at, count, scale);
  }
}

__global__ void __launch_bounds__(kThreads) PackTiles(Tiles table, void* buffer, float scale) {
  const Tile tile = table.tiles[blockIdx.x];
  const Segment segment = table.segments[tile.segment];
  Move(segment.dtype, segment.data, tile.first, table.buffer_dtype, buffer, segment.first + tile.first, tile.count,
       scale);
}

__global__ void __launch_bounds__(kThreads) UnpackTiles(Tiles table, const void* buffer, float scale) {
  const Tile tile = table.tiles[blockIdx.x];
  const Segment segment = table.segments[tile.segment];
  Move(table.buffer_dtype, buffer, segment.first + tile.first, segment.dtype, segment.data, tile.first, tile.count,
       scale);
}

}  // namespace

cudaError_t LaunchPack(const Tiles& tiles, void* buffer, float scale, cudaStream_t stream) {
  if (tiles.tile_count == 0) return cudaSuccess;
  PackTiles<<<tiles.tile_count, kThreads, 0, stream>>>(tiles, buffer, scale);
  return cudaGetLastError();
}

cudaError_t LaunchUnpack(const Tiles& tiles, const void* buffer, float scale, cudaStream_t stream) {
  if (tiles.tile_count == 0) return cudaSuccess;
  UnpackTiles<<<tiles.tile_count, kThreads, 0, stream>>>(tiles, buffer, scale);
  return cudaGetLastError();
}

cudaError_t SetTiles(cudaGraphExec_t graph, const PackNode& pack, const Tiles& tiles) {
  Tiles table = tiles;
  void* buffer = pack.buffer;
  float scale = pack.scale;
  void* arguments[] = {&table, &buffer, &scale};
  cudaKernelNodeParams launch = {};
  launch.func = pack.unpacks ? reinterpret_cast<void*>(&UnpackTiles) : reinterpret_cast<void*>(&PackTiles);
  launch.gridDim = dim3(static_cast<unsigned>(tiles.tile_count));
  launch.blockDim = dim3(kThreads);
  launch.kernelParams = arguments;
  return cudaGraphExecKernelNodeSetParams(graph, pack.node, &launch);
}

}  // namespace gyre::device::cuda
