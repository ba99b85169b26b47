#include "device/cuda/call.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::device::cuda {

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
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureImplicit: return absl::FailedPreconditionError(text);
    default: return absl::InternalError(text);
  }
}

}  // namespace gyre::device::cuda
