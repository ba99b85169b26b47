// OneGpu: the GPU that all of an object's tensors are on that are on any: the first one's.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/gpu.h"
#include "gyre/tensor.h"
#include "runtime/gpus.h"

namespace gyre::internal {

// Not thread-safe.
class OneGpu {
 public:
  explicit OneGpu(Gpus& gpus) : gpus_(gpus) {}

  // Of a tensor there. kInvalidArgument: it is another GPU, or none that can be, or the stream is cudaStreamPerThread;
  // others are Gpus::Get's. REQUIRES: device.gpu is not -1
  absl::StatusOr<std::shared_ptr<device::Gpu>> Open(const Device& device);

  // Null: there was none yet.
  const std::shared_ptr<device::Gpu>& gpu() const { return gpu_; }

 private:
  Gpus& gpus_;
  std::shared_ptr<device::Gpu> gpu_;
};

}  // namespace gyre::internal
