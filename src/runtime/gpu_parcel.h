// GpuParcel: bytes on their way between a GPU's kernels and the host's calls: a piece of the GPU's memory, and a pinned
// slot of the staged backend's. Both grow together, or stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/staged/factory.h"
#include "runtime/codec_device.h"
#include "runtime/gpu_codec_device.h"

namespace gyre::internal {

class GpuParcel final : public Parcel {
 public:
  // `device` outlives it.
  explicit GpuParcel(GpuCodecDevice& device) : device_(device) {}
  ~GpuParcel() override;
  GpuParcel(const GpuParcel&) = delete;
  GpuParcel& operator=(const GpuParcel&) = delete;

  absl::Status Resize(int64_t bytes) override;
  int64_t size() const override { return size_; }
  std::byte* there() override { return there_; }
  std::byte* here() override { return ring_ == nullptr ? nullptr : ring_->slots[0].memory; }
  absl::Status Bring() override;
  absl::Status Send() override;

 private:
  absl::Status Grow(int64_t bytes);
  absl::StatusOr<std::unique_ptr<staged::Ring>> TakeRested(int64_t bytes);
  void GiveBack();

  GpuCodecDevice& device_;
  std::unique_ptr<staged::Ring> ring_;  // of which one slot is used, on the device's stream
  std::byte* there_ = nullptr;          // the device's
  int64_t capacity_ = 0, size_ = 0;
};

}  // namespace gyre::internal
