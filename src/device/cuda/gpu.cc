#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/cuda/call.h"
#include "device/cuda/codecs.h"
#include "device/cuda/graph.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/open.h"
#include "device/cuda/sharing.h"
#include "device/cuda/tables.h"
#include "gyre/status_macros.h"

namespace gyre::device::cuda {

namespace {

int64_t PlaceOf(const cudaDeviceProp& properties) {
  return int64_t{properties.pciDomainID} << 16 | properties.pciBusID << 8 | properties.pciDeviceID;
}

class CudaGpu final : public Gpu {
 public:
  CudaGpu(const PrimaryContext& primary, const cudaDeviceProp& properties)
      : primary_(primary),
        name_(properties.name),
        uuid_(properties.uuid.bytes, sizeof properties.uuid.bytes),
        place_(PlaceOf(properties)),
        multiprocessors_(properties.multiProcessorCount),
        tables_(primary),
        captures_(primary),
        sharing_(primary),
        codecs_(MakeCodecs(primary, multiprocessors_)) {}

  std::string name() const override { return name_; }
  int ordinal() const override { return primary_.ordinal; }
  std::string uuid() const override { return uuid_; }
  int64_t place() const override { return place_; }
  GpuSharing& sharing() override { return sharing_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    return On<void*>(
        [&](void** memory) { return cudaMalloc(memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))); },
        absl::StrCat(bytes, " bytes on GPU ", primary_.ordinal));
  }

  void Free(void* memory) override {
    GiveBack(primary_, [&] { cudaFree(memory); });  // its errors are of earlier work, which other calls report
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
    GiveBack(primary_, [&] { cudaStreamDestroy(AsCuda(stream)); });
  }

  absl::Status Synchronize(Stream stream) override {
    return On([&] { return cudaStreamSynchronize(AsCuda(stream)); }, "waiting for a stream");
  }

  absl::StatusOr<Event> CreateEvent() override {
    return On<Event>(
        [](Event* event) {
          cudaEvent_t made = nullptr;
          const auto error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
          *event = made;
          return error;
        },
        "making an event");
  }

  void DestroyEvent(Event event) override {
    GiveBack(primary_, [&] { cudaEventDestroy(EventOf(event)); });
  }

  absl::Status CheckNotCaptured(Stream stream) override {
    cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
    RETURN_IF_ERROR(
        On([&] { return cudaStreamIsCapturing(AsCuda(stream), &captured); }, "asking what a stream is used for"));
    if (captured == cudaStreamCaptureStatusNone) return absl::OkStatus();
    return absl::FailedPreconditionError("the stream is being captured into a graph, which cannot hold this call");
  }

  absl::Status Record(Event event, Stream stream) override {
    RETURN_IF_ERROR(CheckNotCaptured(stream));
    return On([&] { return cudaEventRecord(EventOf(event), AsCuda(stream)); }, "recording an event");
  }

  absl::Status Wait(Stream stream, Event event) override {
    RETURN_IF_ERROR(CheckNotCaptured(stream));
    return On([&] { return cudaStreamWaitEvent(AsCuda(stream), EventOf(event), cudaEventWaitDefault); },
              "having a stream wait for an event");
  }

  absl::StatusOr<std::shared_ptr<GpuGraph>> Capture(Stream stream) override { return captures_.Begin(AsCuda(stream)); }

  absl::StatusOr<bool> Done(Event event) override {
    bool done = true;
    RETURN_IF_ERROR(On(
        [&] {
          const auto error = cudaEventQuery(EventOf(event));
          done = error != cudaErrorNotReady;
          return done ? error : cudaSuccess;
        },
        "asking for an event"));
    return done;
  }

  absl::Status Pin(void* memory, int64_t bytes) override {
    return On([&] { return cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterPortable); },
              absl::StrCat("pinning ", bytes, " bytes of host memory"));
  }

  void Unpin(void* memory) override {
    GiveBack(primary_, [&] { cudaHostUnregister(memory); });
  }

  absl::Status Copy(void* to, const void* from, int64_t bytes, Stream stream) override {
    if (bytes <= 0) return absl::OkStatus();
    return On([&] { return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, AsCuda(stream)); },
              absl::StrCat("copying ", bytes, " bytes"));
  }

  absl::Status Zero(void* memory, int64_t bytes, Stream stream) override {
    if (bytes <= 0) return absl::OkStatus();
    return On([&] { return cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), AsCuda(stream)); },
              absl::StrCat("clearing ", bytes, " bytes"));
  }

  absl::StatusOr<std::unique_ptr<Table>> Upload(PackTable table, Stream used_on) override {
    return tables_.Upload(std::move(table), used_on);
  }

  absl::Status Pack(const Table& table, void* buffer, double scale, Stream stream) override {
    return Packed({.node = nullptr, .unpacks = false, .buffer = buffer, .scale = static_cast<float>(scale)}, table,
                  scale, stream);
  }

  absl::Status Unpack(const Table& table, const void* buffer, double scale, Stream stream) override {
    return Packed({.node = nullptr,
                   .unpacks = true,
                   .buffer = const_cast<void*>(buffer),  // the kernel only reads it
                   .scale = static_cast<float>(scale)},
                  table, scale, stream);
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

  absl::Status AddSquares(ConstTensorView view, double* parts, uint64_t* non_finite, Stream stream) override {
    return On([&] { return LaunchAddSquares(view.data, view.dtype, view.count, parts, non_finite, AsCuda(stream)); },
              "summing squares up");
  }

  absl::Status Update(const UpdateRule& rule, std::span<const kernels::Weights> tensors, Stream stream) override {
    for (; !tensors.empty(); tensors = tensors.subspan(std::min<size_t>(tensors.size(), kUpdateBatch))) {
      const auto batch = tensors.first(std::min<size_t>(tensors.size(), kUpdateBatch));
      RETURN_IF_ERROR(On([&] { return LaunchUpdate(rule, batch, multiprocessors_, AsCuda(stream)); }, "updating"));
    }
    return absl::OkStatus();
  }

  GpuCodecs& codecs() override { return *codecs_; }

 private:
  template <typename Call>
  absl::Status On(const Call& call, std::string_view what) {
    return cuda::On(primary_, call, what);
  }

  template <typename Made, typename Call>
  absl::StatusOr<Made> On(const Call& call, std::string_view what) {
    Made made = nullptr;
    RETURN_IF_ERROR(On([&] { return call(&made); }, what));
    return made;
  }

  absl::Status Packed(const PackNode& pack, const Table& table, double scale, Stream stream) {
    RETURN_IF_ERROR(CheckScale(table.host(), scale));
    const Tiles tiles = Tables::TilesOf(table);
    RETURN_IF_ERROR(On(
        [&] {
          return pack.unpacks ? LaunchUnpack(tiles, pack.buffer, pack.scale, AsCuda(stream))
                              : LaunchPack(tiles, pack.buffer, pack.scale, AsCuda(stream));
        },
        pack.unpacks ? "unpacking" : "packing"));
    return tiles.tile_count > 0 ? captures_.Note(AsCuda(stream), pack) : absl::OkStatus();
  }

  const PrimaryContext primary_;
  const std::string name_, uuid_;
  const int64_t place_;
  const int multiprocessors_;
  Tables tables_;
  Captures captures_;
  CudaSharing sharing_;
  const std::unique_ptr<GpuCodecs> codecs_;
};

}  // namespace

absl::StatusOr<int> CountCudaGpus() {
  int count = 0;
  RETURN_IF_ERROR(ToStatus(cudaGetDeviceCount(&count), "looking for GPUs"));
  return count;
}

absl::StatusOr<std::unique_ptr<Gpu>> OpenCudaGpu(int ordinal) {
  ASSIGN_OR_RETURN(const int count, CountCudaGpus());
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat("there is no GPU ", ordinal, ", but ", count, " of them"));
  }
  cudaDeviceProp properties;
  RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties, ordinal), "asking what the GPU is"));
  RETURN_IF_ERROR(ToStatus(cudaInitDevice(ordinal, 0, 0), "opening the GPU"));
  ASSIGN_OR_RETURN(const PrimaryContext primary, OpenPrimaryContext(ordinal));
  return std::make_unique<CudaGpu>(primary, properties);
}

}  // namespace gyre::device::cuda
