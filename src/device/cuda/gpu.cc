#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/cuda/factory.h"
#include "device/cuda/launch.cuh"
#include "gyre/status_macros.h"

namespace gyre::device::cuda {

namespace {

absl::Status ToStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text =
      absl::StrCat(ToAbsl(what), ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  switch (error) {
    case cudaErrorMemoryAllocation: return absl::ResourceExhaustedError(text);
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice: return absl::InvalidArgumentError(text);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary: return absl::UnavailableError(text);
    default: return absl::InternalError(text);
  }
}

cudaStream_t AsCuda(Gpu::Stream stream) {
  return static_cast<cudaStream_t>(stream);
}

// Makes a GPU this thread's for as long as it lives: CUDA's calls act on the thread's current one, and what the
// program has chosen is not ours to change.
class Current {
 public:
  explicit Current(int ordinal) {
    error_ = cudaGetDevice(&before_);
    if (error_ != cudaSuccess || before_ == ordinal) return;
    error_ = cudaSetDevice(ordinal);
    changed_ = error_ == cudaSuccess;
  }
  ~Current() {
    if (changed_) cudaSetDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  absl::Status status() const { return ToStatus(error_, "choosing the GPU"); }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_;
};

class CudaGpu;

// The segments, and behind them the tiles.
class CudaTable final : public Gpu::Table {
 public:
  CudaTable(Gpu& gpu, PackTable host, void* memory) : gpu_(gpu), host_(std::move(host)), memory_(memory) {}
  ~CudaTable() override { gpu_.Free(memory_); }

  const PackTable& host() const override { return host_; }

  Tiles tiles() const {
    const auto* segments = static_cast<const Segment*>(memory_);
    return {.segments = segments,
            .tiles = reinterpret_cast<const Tile*>(segments + host_.segments.size()),
            .tile_count = static_cast<int>(host_.tiles.size()),
            .buffer_dtype = host_.buffer_dtype};
  }

 private:
  Gpu& gpu_;
  const PackTable host_;
  void* const memory_;
};

class CudaGpu final : public Gpu {
 public:
  CudaGpu(int ordinal, std::string name, int multiprocessors)
      : ordinal_(ordinal), name_(std::move(name)), multiprocessors_(multiprocessors) {}

  std::string name() const override { return name_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    return On<void*>(
        [&](void** memory) { return cudaMalloc(memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))); },
        absl::StrCat(bytes, " bytes on GPU ", ordinal_));
  }

  void Free(void* memory) override {
    const Current current(ordinal_);
    cudaFree(memory);  // its errors are of earlier work, which other calls report
  }

  absl::StatusOr<Stream> CreateStream() override {
    return On<Stream>(
        [](Stream* stream) {
          int lowest = 0, highest = 0;
          if (auto error = cudaDeviceGetStreamPriorityRange(&lowest, &highest); error != cudaSuccess) return error;
          cudaStream_t made = nullptr;
          const auto error = cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, highest);
          *stream = made;
          return error;
        },
        "making a stream");
  }

  void DestroyStream(Stream stream) override {
    const Current current(ordinal_);
    cudaStreamDestroy(AsCuda(stream));
  }

  absl::Status Synchronize(Stream stream) override {
    return On([&] { return cudaStreamSynchronize(AsCuda(stream)); }, "waiting for a stream");
  }

  absl::Status Copy(void* to, const void* from, int64_t bytes, Stream stream) override {
    if (bytes <= 0) return absl::OkStatus();
    return On([&] { return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, AsCuda(stream)); },
              absl::StrCat("copying ", bytes, " bytes"));
  }

  absl::StatusOr<std::unique_ptr<Table>> Upload(PackTable table) override {
    const size_t segments = table.segments.size() * sizeof(Segment);
    const size_t tiles = table.tiles.size() * sizeof(Tile);
    ASSIGN_OR_RETURN(void* const memory, Allocate(static_cast<int64_t>(segments + tiles)));
    auto uploaded = std::make_unique<CudaTable>(*this, std::move(table), memory);
    const PackTable& host = uploaded->host();
    RETURN_IF_ERROR(On(
        [&] {
          auto error = cudaMemcpy(memory, host.segments.data(), segments, cudaMemcpyHostToDevice);
          if (error != cudaSuccess) return error;
          error = cudaMemcpy(static_cast<char*>(memory) + segments, host.tiles.data(), tiles, cudaMemcpyHostToDevice);
          // What is pageable may still be on its way, and streams of ours do not wait for the default one.
          return error == cudaSuccess ? cudaStreamSynchronize(cudaStreamLegacy) : error;
        },
        "copying a table of tensors"));
    return uploaded;
  }

  absl::Status Pack(const Table& table, void* buffer, double scale, Stream stream) override {
    RETURN_IF_ERROR(CheckScale(table.host(), scale));
    const auto& tiles = static_cast<const CudaTable&>(table);
    return On([&] { return LaunchPack(tiles.tiles(), buffer, static_cast<float>(scale), AsCuda(stream)); }, "packing");
  }

  absl::Status Unpack(const Table& table, const void* buffer, double scale, Stream stream) override {
    RETURN_IF_ERROR(CheckScale(table.host(), scale));
    const auto& tiles = static_cast<const CudaTable&>(table);
    return On([&] { return LaunchUnpack(tiles.tiles(), buffer, static_cast<float>(scale), AsCuda(stream)); },
              "unpacking");
  }

  absl::Status Reduce(const Reduction& reduction, std::span<const void* const> sources,
                      std::span<void* const> destinations, int64_t count, Stream stream) override {
    RETURN_IF_ERROR(CheckOperands(sources.size(), destinations.size()));
    Operands operands{.sources = {},
                      .destinations = {},
                      .source_count = static_cast<int>(sources.size()),
                      .destination_count = static_cast<int>(destinations.size()),
                      .scale_source = reduction.scale_source,
                      .scale_result = reduction.scale_result,
                      .divisor = reduction.divisor};
    std::copy(sources.begin(), sources.end(), operands.sources);
    std::copy(destinations.begin(), destinations.end(), operands.destinations);
    return On(
        [&] { return LaunchReduce(reduction.dtype, reduction.op, operands, count, multiprocessors_, AsCuda(stream)); },
        "reducing");
  }

  absl::Status CountNonFinite(ConstTensorView view, uint64_t* found, Stream stream) override {
    return On(
        [&] {
          return LaunchCountNonFinite(view.data, view.dtype, view.count, found, multiprocessors_, AsCuda(stream));
        },
        "looking for what is not finite");
  }

 private:
  template <typename Call>
  absl::Status On(const Call& call, std::string_view what) {
    const Current current(ordinal_);
    RETURN_IF_ERROR(current.status());
    cudaGetLastError();  // an earlier call's, which has been reported: launches ask for theirs
    const cudaError_t error = call();
    if (error != cudaSuccess) cudaGetLastError();
    return ToStatus(error, what);
  }

  template <typename Made, typename Call>
  absl::StatusOr<Made> On(const Call& call, std::string_view what) {
    Made made = nullptr;
    RETURN_IF_ERROR(On([&] { return call(&made); }, what));
    return made;
  }

  const int ordinal_;
  const std::string name_;
  const int multiprocessors_;
};

}  // namespace

absl::StatusOr<int> CountGpus() {
  int count = 0;
  RETURN_IF_ERROR(ToStatus(cudaGetDeviceCount(&count), "looking for GPUs"));
  return count;
}

absl::StatusOr<std::unique_ptr<Gpu>> OpenGpu(int ordinal) {
  ASSIGN_OR_RETURN(const int count, CountGpus());
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat("there is no GPU ", ordinal, ", but ", count, " of them"));
  }
  cudaDeviceProp properties;
  RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties, ordinal), "asking what the GPU is"));
  RETURN_IF_ERROR(ToStatus(cudaInitDevice(ordinal, 0, 0), "opening the GPU"));
  return std::make_unique<CudaGpu>(ordinal, properties.name, properties.multiProcessorCount);
}

}  // namespace gyre::device::cuda
