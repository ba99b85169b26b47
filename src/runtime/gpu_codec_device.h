// GpuCodecDevice: the codecs' work on a GPU, queued on the stream that the gradients' buckets are worked on. Bytes come
// and go through pinned memory; events alone tell when they have, and nothing waits for the GPU but what says so.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "device/gpu.h"
#include "runtime/codec_device.h"
#include "runtime/gpus.h"

namespace gyre::internal {

class GpuCodecDevice final : public CodecDevice {
 public:
  // `stream` outlives it. `name`: for errors. `timeout`: how long Save and Restore wait for the GPU.
  GpuCodecDevice(OpenedGpu opened, device::Gpu::Stream stream, std::string name, std::chrono::milliseconds timeout);

  // Waits for what is queued, if it has memory, 2 s at most: what the GPU still uses then stays allocated.
  ~GpuCodecDevice() override;
  GpuCodecDevice(const GpuCodecDevice&) = delete;
  GpuCodecDevice& operator=(const GpuCodecDevice&) = delete;

  bool on_host() const override { return false; }
  CodecSpeed Speed(const Compression& compression) override;
  int64_t alignment() const override { return 16; }
  absl::StatusOr<std::span<float>> Keep(int64_t count) override;
  absl::StatusOr<std::span<float>> Scratch(int64_t count) override;
  std::unique_ptr<Parcel> MakeParcel() override;
  absl::Status Quantize(compression::PayloadKind kind, const float* gradient, float* kept, int64_t count, uint64_t seed,
                        std::byte* out) override;
  absl::Status DequantizeAdd(compression::PayloadKind kind, const std::byte* from, int64_t count, float scale,
                             float* sum) override;
  absl::Status Zero(std::span<float> values) override;
  absl::Status Move(std::span<float> values, std::span<float> sum) override;
  absl::Status RunPass(device::kernels::LowRankPass pass,
                       std::span<const device::kernels::LowRankMatrix> matrices) override;
  absl::StatusOr<std::unique_ptr<SparseEncoder>> MakeSparseEncoder(const Compression& compression,
                                                                   const ExchangeSettings& settings,
                                                                   const HostPieces& pieces) override;
  absl::Status Look(std::span<const std::span<const float>> gradients) override;
  Facts Looked() override;
  absl::StatusOr<bool> Done() override;
  std::string Awaited() const override;
  absl::StatusOr<std::vector<std::byte>> Save(std::span<const compression::StateArrays> codecs) override;
  absl::Status Restore(std::span<const std::span<const std::byte>> saved,
                       std::span<const compression::StateArrays> codecs) override;

  // --- For what else works on the GPU ---

  device::Gpu& gpu() const { return *opened_.gpu; }
  device::Gpu::Stream stream() const { return stream_; }
  staged::Rings& rings() const { return *opened_.rings; }

  // The GPU's memory, for as long as the object lives: to free it earlier would wait for all that is queued.
  absl::StatusOr<void*> Allocate(int64_t bytes, std::string_view what);

  // Done says so from now on only once `event`, recorded on the stream, has been reached.
  void Await(device::Gpu::Event event) { awaited_.push_back(event); }
  void Forget(device::Gpu::Event event) { std::erase(awaited_, event); }

  // Blocks until what is queued on the stream has been done. kDeadlineExceeded: it was not by then.
  absl::Status AwaitQueued(TimePoint deadline);

  // At the end: whether the GPU has done with all that was queued. The first time, waits for that, 2 s at most.
  bool Rests();

  // The status with the GPU's name before it.
  absl::Status Named(const absl::Status& status) const;

 private:
  absl::Status Copy(std::span<const compression::StateArrays> to, std::span<const compression::StateArrays> from);

  const OpenedGpu opened_;
  device::Gpu::Stream const stream_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  std::vector<void*> memory_;  // all that was allocated
  std::span<float> scratch_;
  std::vector<device::Gpu::Event> awaited_;
  std::unique_ptr<Parcel> looks_;  // Gpu::kSquareParts sums, and a counter for each gradient; null before the first
  bool looking_ = false;           // from Look to Looked
  device::Gpu::Event queued_ = nullptr;  // of AwaitQueued; made when it is first needed
  std::optional<bool> rests_;
  std::optional<CodecSpeed> speed_;
};

// Of gradients on the GPU `opened` of rank `rank`.
std::shared_ptr<CodecDevice> MakeGpuDevice(OpenedGpu opened, device::Gpu::Stream stream, int rank,
                                           std::chrono::milliseconds timeout);

}  // namespace gyre::internal
