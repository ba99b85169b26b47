// GpuMarks: what had been queued on a call's streams when it was made.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "collectives/call.h"
#include "device/gpu.h"

namespace gyre::internal {

// Marks in the order of a call's streams; gone with the object.
struct GpuMarks {
  explicit GpuMarks(std::shared_ptr<device::Gpu> gpu) : gpu(std::move(gpu)) {}
  ~GpuMarks();
  GpuMarks(const GpuMarks&) = delete;
  GpuMarks& operator=(const GpuMarks&) = delete;

  absl::Status Make(const Call& call);

  const std::shared_ptr<device::Gpu> gpu;
  device::Gpu::Event input = nullptr;
  device::Gpu::Event output = nullptr;  // may be the same
};

}  // namespace gyre::internal
