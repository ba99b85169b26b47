#include "device/cuda/module.h"

#include "device/cuda/open.h"
#include "gyre/version.h"

extern "C" __attribute__((visibility("default"))) const gyre::device::cuda::Module* gyre_cuda_module() {
  static constexpr gyre::device::cuda::Module kModule{GYRE_VERSION_STRING, gyre::device::cuda::CountCudaGpus,
                                                      gyre::device::cuda::OpenCudaGpu};
  return &kModule;
}
