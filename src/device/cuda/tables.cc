#include "device/cuda/tables.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/cuda/call.h"
#include "gyre/status_macros.h"

namespace gyre::device::cuda {

namespace {

// The segments, and behind them the tiles.
class CudaTable final : public Gpu::Table {
 public:
  CudaTable(const PrimaryContext& primary, PackTable host, void* memory, cudaStream_t used_on)
      : primary_(primary), host_(std::move(host)), memory_(memory), used_on_(used_on) {}
  ~CudaTable() override {
    // Its errors are of earlier work, which other calls report.
    GiveBack(primary_, [&] { cudaFreeAsync(memory_, used_on_); });
  }

  const PackTable& host() const override { return host_; }
  void* memory() const { return memory_; }

 private:
  const PrimaryContext primary_;
  const PackTable host_;
  void* const memory_;
  const cudaStream_t used_on_;
};

}  // namespace

Tables::~Tables() {
  GiveBack(primary_, [&] {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (pool_ != nullptr) cudaMemPoolDestroy(pool_);  // goes once what came from it has gone
  });
}

// What is freed behind work that is yet to be done must not be given to the next table at the price of waiting for that
// work, as pools do where they may. The pool keeps what it has: tables are small.
absl::Status Tables::Open() {
  if (stream_ != nullptr) return absl::OkStatus();
  return On(
      primary_,
      [&] {
        cudaMemPoolProps properties = {};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.location.id = primary_.ordinal;
        cudaError_t error = pool_ == nullptr ? cudaMemPoolCreate(&pool_, &properties) : cudaSuccess;
        int waits = 0;
        uint64_t kept = UINT64_MAX;
        if (error == cudaSuccess) {
          error = cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &waits);
        }
        if (error == cudaSuccess) error = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept);
        return error == cudaSuccess ? cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) : error;
      },
      "making place for tables of tensors");
}

absl::StatusOr<std::unique_ptr<Gpu::Table>> Tables::Upload(PackTable table, Gpu::Stream used_on) {
  const size_t segments = table.segments.size() * sizeof(Segment), tiles = table.tiles.size() * sizeof(Tile);
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Open());
  void* memory = nullptr;
  RETURN_IF_ERROR(On(
      primary_, [&] { return cudaMallocFromPoolAsync(&memory, segments + tiles + 1, pool_, stream_); },
      absl::StrCat(segments + tiles, " bytes on GPU ", primary_.ordinal)));
  auto uploaded = std::make_unique<CudaTable>(primary_, std::move(table), memory, AsCuda(used_on));
  const PackTable& host = uploaded->host();
  RETURN_IF_ERROR(On(
      primary_,
      [&] {
        auto error = cudaMemcpyAsync(memory, host.segments.data(), segments, cudaMemcpyHostToDevice, stream_);
        if (error != cudaSuccess) return error;
        error = cudaMemcpyAsync(static_cast<char*>(memory) + segments, host.tiles.data(), tiles, cudaMemcpyHostToDevice,
                                stream_);
        return error == cudaSuccess ? cudaStreamSynchronize(stream_) : error;
      },
      "copying a table of tensors"));
  return uploaded;
}

Tiles Tables::TilesOf(const Gpu::Table& table) {
  const PackTable& host = table.host();
  const auto* segments = static_cast<const Segment*>(static_cast<const CudaTable&>(table).memory());
  return {.segments = segments,
          .tiles = reinterpret_cast<const Tile*>(segments + host.segments.size()),
          .tile_count = static_cast<int>(host.tiles.size()),
          .buffer_dtype = host.buffer_dtype};
}

}  // namespace gyre::device::cuda
