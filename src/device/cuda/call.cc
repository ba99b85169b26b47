#include "device/cuda/call.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::device::cuda {

namespace {

// The driver's own calls that the runtime has no like of; all null where they were not found.
struct Driver {
  decltype(&cuCtxGetCurrent) get_context = nullptr;
  decltype(&cuCtxSetCurrent) set_context = nullptr;
  decltype(&cuDevicePrimaryCtxGetState) get_state = nullptr;
};

Driver FindDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // which the runtime has loaded
  if (library == nullptr) return {};
  const auto find = [library]<typename Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  };
  Driver driver;
  const bool found = find(driver.get_context, "cuCtxGetCurrent") && find(driver.set_context, "cuCtxSetCurrent") &&
                     find(driver.get_state, "cuDevicePrimaryCtxGetState");
  return found ? driver : Driver();
}

const Driver& TheDriver() {
  static const Driver driver = FindDriver();
  return driver;
}

// Whether this process has a context there: to choose a GPU makes one.
bool IsOpen(int ordinal) {
  unsigned flags = 0;
  int active = 0;
  return TheDriver().get_state(ordinal, &flags, &active) == CUDA_SUCCESS && active != 0;
}

}  // namespace

Current::Current(int ordinal) {
  cudaThreadExchangeStreamCaptureMode(&capture_);
  error_ = cudaGetDevice(&before_);
  if (error_ != cudaSuccess || before_ == ordinal) return;
  if (TheDriver().get_context != nullptr) TheDriver().get_context(&context_before_);
  error_ = cudaSetDevice(ordinal);
  changed_ = error_ == cudaSuccess;
}

// A thread that never chose a GPU has GPU 0, and no context: to choose that one again would make its context, of some
// 500 MB, in every process.
Current::~Current() {
  if (changed_) {
    const bool by_driver = TheDriver().set_context != nullptr && (context_before_ != nullptr || !IsOpen(before_));
    if (by_driver) {
      TheDriver().set_context(context_before_);
    } else {
      cudaSetDevice(before_);
    }
  }
  cudaThreadExchangeStreamCaptureMode(&capture_);
}

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
