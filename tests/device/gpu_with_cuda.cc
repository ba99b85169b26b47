#include "device/cuda/factory.h"
#include "device/fake_gpu.h"
#include "device/gpu_under_test.h"

namespace gyre::device {

absl::StatusOr<std::unique_ptr<Gpu>> OpenGpuUnderTest(std::string_view kind) {
  if (kind == "fake") return std::make_unique<FakeGpu>();
  return cuda::OpenGpu(0);
}

}  // namespace gyre::device
