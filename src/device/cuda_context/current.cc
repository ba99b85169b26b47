#include "device/cuda_context/current.h"

#include <dlfcn.h>

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::device::cuda {

namespace {

// What stands for a call that the driver does not have, or where there is no driver.
template <typename... Arguments>
CUresult Missing(Arguments... /*none are used*/) {
  return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
}

// The driver's own calls.
struct Driver {
  decltype(&cuInit) init = Missing;
  decltype(&cuDeviceGet) get_device = Missing;
  decltype(&cuDevicePrimaryCtxRetain) retain = Missing;
  decltype(&cuCtxGetCurrent) get_current = Missing;
  decltype(&cuCtxPushCurrent) push = Missing;
  decltype(&cuCtxPopCurrent) pop = Missing;
  decltype(&cuGetErrorString) describe = Missing;
};

Driver FindDriver() {
  Driver driver;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // which the runtime loads as well
  if (library == nullptr) return driver;
  const auto find = [library]<typename Function>(Function& function, const char* name) {
    if (void* const found = dlsym(library, name); found != nullptr) function = reinterpret_cast<Function>(found);
  };
  find(driver.init, "cuInit");
  find(driver.get_device, "cuDeviceGet");
  find(driver.retain, "cuDevicePrimaryCtxRetain");
  find(driver.get_current, "cuCtxGetCurrent");
  find(driver.push, "cuCtxPushCurrent_v2");
  find(driver.pop, "cuCtxPopCurrent_v2");
  find(driver.describe, "cuGetErrorString");
  return driver;
}

const Driver& TheDriver() {
  static const Driver driver = FindDriver();
  return driver;
}

absl::Status DriverStatus(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* text = nullptr;
  TheDriver().describe(result, &text);
  if (text == nullptr) {
    text = result == CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND ? "CUDA's driver is not there, or lacks a call"
                                                               : "an error that CUDA's driver has no words for";
  }
  const std::string message = absl::StrCat(ToAbsl(what), ": ", text, " (", static_cast<int>(result), ")");
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return absl::ResourceExhaustedError(message);
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: return absl::UnavailableError(message);
    default: return absl::InternalError(message);
  }
}

}  // namespace

absl::StatusOr<PrimaryContext> OpenPrimaryContext(int ordinal) {
  const Driver& driver = TheDriver();
  PrimaryContext gpu{.ordinal = ordinal};
  CUdevice device = 0;
  CUresult result = driver.init(0);
  if (result == CUDA_SUCCESS) result = driver.get_device(&device, ordinal);
  if (result == CUDA_SUCCESS) result = driver.retain(&gpu.context, device);
  if (result != CUDA_SUCCESS) return DriverStatus(result, "opening the GPU");
  return gpu;
}

// The capture mode is the thread's, but to ask for it takes a context.
Current::Current(const PrimaryContext& gpu) {
  CUcontext before = nullptr;
  result_ = TheDriver().get_current(&before);
  if (result_ == CUDA_SUCCESS && before != gpu.context) {
    result_ = TheDriver().push(gpu.context);
    pushed_ = result_ == CUDA_SUCCESS;
  }
  if (result_ == CUDA_SUCCESS) cudaThreadExchangeStreamCaptureMode(&capture_);
}

Current::~Current() {
  if (result_ != CUDA_SUCCESS) return;
  cudaThreadExchangeStreamCaptureMode(&capture_);
  if (!pushed_) return;
  CUcontext ours = nullptr;
  TheDriver().pop(&ours);
}

absl::Status Current::status() const {
  return DriverStatus(result_, "choosing the GPU");
}

}  // namespace gyre::device::cuda
