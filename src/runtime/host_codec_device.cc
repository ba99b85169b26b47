// The codecs' work by the processor, in the host's memory: done when a function returns.
#include <algorithm>
#include <utility>

#include "compression/accumulate.h"
#include "compression/large_buffer.h"
#include "compression/power_sgd.h"
#include "compression/quantize.h"
#include "runtime/codec_device.h"
#include "runtime/host_sparse_encoder.h"

namespace gyre::internal {

namespace {

class HostParcel final : public Parcel {
 public:
  absl::Status Resize(int64_t bytes) override {
    bytes_.resize(static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  int64_t size() const override { return std::ssize(bytes_); }
  std::byte* there() override { return bytes_.data(); }
  std::byte* here() override { return bytes_.data(); }
  absl::Status Bring() override { return absl::OkStatus(); }
  absl::Status Send() override { return absl::OkStatus(); }

 private:
  std::vector<std::byte> bytes_;
};

class HostDevice final : public CodecDevice {
 public:
  bool on_host() const override { return true; }
  CodecSpeed Speed(const Compression& compression) override { return MeasureSpeed(compression); }
  int64_t alignment() const override { return 1; }

  absl::StatusOr<std::span<float>> Keep(int64_t count) override { return kept_.emplace_back(count).span(); }

  absl::StatusOr<std::span<float>> Scratch(int64_t count) override {
    scratch_.resize(std::max(scratch_.size(), static_cast<size_t>(count)));
    return std::span(scratch_).first(static_cast<size_t>(count));
  }

  std::unique_ptr<Parcel> MakeParcel() override { return std::make_unique<HostParcel>(); }

  absl::Status Quantize(compression::PayloadKind kind, const float* gradient, float* kept, int64_t count, uint64_t seed,
                        std::byte* out) override {
    compression::Quantize(kind, gradient, kept, count, seed, out);
    return absl::OkStatus();
  }
  absl::Status DequantizeAdd(compression::PayloadKind kind, const std::byte* from, int64_t count, float scale,
                             float* sum) override {
    compression::DequantizeAdd(kind, from, count, scale, sum);
    return absl::OkStatus();
  }
  absl::Status Zero(std::span<float> values) override {
    std::ranges::fill(values, 0.0f);
    return absl::OkStatus();
  }
  absl::Status Move(std::span<float> values, std::span<float> sum) override {
    for (size_t i = 0; i < values.size(); ++i) {
      sum[i] += values[i];
      values[i] = 0;
    }
    return absl::OkStatus();
  }

  absl::Status RunPass(device::kernels::LowRankPass pass,
                       std::span<const device::kernels::LowRankMatrix> matrices) override {
    for (const auto& matrix : matrices) compression::RunPass(pass, matrix);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<SparseEncoder>> MakeSparseEncoder(const Compression& compression,
                                                                   const ExchangeSettings& settings,
                                                                   const HostPieces& pieces) override {
    return HostSparseEncoder::Create(compression, settings, pieces);
  }

  absl::Status Look(std::span<const std::span<const float>> gradients) override {
    looked_ = {};
    for (const std::span<const float> gradient : gradients) {
      const compression::Squares squares = compression::SumOfSquares(gradient);
      looked_.squares += squares.sum;
      looked_.non_finite.push_back(squares.non_finite);
    }
    return absl::OkStatus();
  }
  Facts Looked() override { return std::move(looked_); }

  absl::StatusOr<bool> Done() override { return true; }
  std::string Awaited() const override { return ""; }

  absl::StatusOr<std::vector<std::byte>> Save(std::span<const compression::StateArrays> codecs) override {
    return compression::SaveState(codecs);
  }
  absl::Status Restore(std::span<const std::span<const std::byte>> saved,
                       std::span<const compression::StateArrays> codecs) override {
    return compression::RestoreState(saved, codecs);
  }

 private:
  std::vector<compression::LargeBuffer> kept_;
  std::vector<float> scratch_;
  Facts looked_;
};

}  // namespace

std::shared_ptr<CodecDevice> MakeHostDevice() {
  return std::make_shared<HostDevice>();
}

}  // namespace gyre::internal
