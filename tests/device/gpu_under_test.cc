#include "device/gpu_under_test.h"

#include <cstdlib>
#include <filesystem>

#include "device/cuda/factory.h"
#include "device/fake_gpu.h"

namespace gyre::device {

absl::StatusOr<std::unique_ptr<Gpu>> OpenGpuUnderTest(std::string_view kind) {
  if (kind == "fake") return std::make_unique<FakeGpu>();
  auto opened = cuda::OpenGpu(0);
  const bool needed = std::getenv("GYRE_TEST_NEEDS_GPU") != nullptr;
  if (needed && absl::IsUnavailable(opened.status())) return absl::FailedPreconditionError(opened.status().message());
  if (!needed && !CudaModuleIsBuilt() && absl::IsUnimplemented(opened.status())) {
    return absl::UnavailableError(opened.status().message());
  }
  return opened;
}

bool CudaModuleIsBuilt() {
  return std::filesystem::exists(CUDA_MODULE_PATH);
}

}  // namespace gyre::device
