#include "device/cuda/current.h"

#include <dlfcn.h>

#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::device::cuda {

namespace {

// The driver's own calls; all null where they were not found.
struct Driver {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDeviceGet) get_device = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;
  decltype(&cuGetErrorString) describe = nullptr;
};

Driver FindDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // which the runtime loads as well
  if (library == nullptr) return {};
  const auto find = [library]<typename Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  };
  Driver driver;
  const bool found = find(driver.init, "cuInit") && find(driver.get_device, "cuDeviceGet") &&
                     find(driver.retain, "cuDevicePrimaryCtxRetain") && find(driver.push, "cuCtxPushCurrent_v2") &&
                     find(driver.pop, "cuCtxPopCurrent_v2") && find(driver.describe, "cuGetErrorString");
  return found ? driver : Driver();
}

const Driver& TheDriver() {
  static const Driver driver = FindDriver();
  return driver;
}

absl::Status ToStatus(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* text = nullptr;
  if (TheDriver().describe != nullptr) TheDriver().describe(result, &text);
  return absl::UnavailableError(absl::StrCat(ToAbsl(what), ": ", text != nullptr ? text : "no driver of CUDA's", " (",
                                             static_cast<int>(result), ")"));
}

}  // namespace

absl::StatusOr<PrimaryContext> OpenPrimaryContext(int ordinal) {
  const Driver& driver = TheDriver();
  if (driver.init == nullptr) return ToStatus(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "opening the GPU");
  PrimaryContext gpu{.ordinal = ordinal};
  CUdevice device = 0;
  CUresult result = driver.init(0);
  if (result == CUDA_SUCCESS) result = driver.get_device(&device, ordinal);
  if (result == CUDA_SUCCESS) result = driver.retain(&gpu.context, device);
  if (result != CUDA_SUCCESS) return ToStatus(result, "opening the GPU");
  return gpu;
}

// The capture mode is the thread's, but to ask for it takes a context.
Current::Current(const PrimaryContext& gpu) : result_(TheDriver().push(gpu.context)) {
  if (result_ == CUDA_SUCCESS) cudaThreadExchangeStreamCaptureMode(&capture_);
}

Current::~Current() {
  if (result_ != CUDA_SUCCESS) return;
  cudaThreadExchangeStreamCaptureMode(&capture_);
  CUcontext ours = nullptr;
  TheDriver().pop(&ours);
}

absl::Status Current::status() const {
  return ToStatus(result_, "choosing the GPU");
}

}  // namespace gyre::device::cuda
