#include <dlfcn.h>

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/cuda/factory.h"
#include "device/cuda/module.h"
#include "gyre/version.h"

namespace gyre::device::cuda {

namespace {

constexpr char kName[] = "libgyre_cuda.so";

// Beside the library or program that this code is in; empty if the system does not say.
std::string Beside() {
  Dl_info info = {};
  if (dladdr(kName, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : absl::StrCat(path.substr(0, slash + 1), kName);
}

// Never closed: CUDA leaves threads behind, and Gpus have their code there.
absl::StatusOr<const Module*> LoadModule() {
  const std::string beside = Beside();
  void* library = beside.empty() ? nullptr : dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::string why;
  if (library == nullptr && !beside.empty()) why = absl::StrCat(dlerror(), "; ");
  if (library == nullptr) library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnimplementedError(absl::StrCat("tensors on GPUs: ", kName, " cannot be loaded: ", why, dlerror()));
  }
  const auto get = reinterpret_cast<GetModule>(dlsym(library, "gyre_cuda_module"));
  if (get == nullptr) return absl::FailedPreconditionError(absl::StrCat(kName, " is not Gyre's"));
  const Module* const module = get();
  if (std::string_view(module->version) == GYRE_VERSION_STRING) return module;
  return absl::FailedPreconditionError(
      absl::StrCat(kName, " is of Gyre ", module->version, ", not ", GYRE_VERSION_STRING));
}

}  // namespace

absl::StatusOr<int> CountGpus() {
  ASSIGN_OR_RETURN(const Module* const module, LoadModule());
  return module->count();
}

absl::StatusOr<std::unique_ptr<Gpu>> OpenGpu(int ordinal) {
  ASSIGN_OR_RETURN(const Module* const module, LoadModule());
  return module->open(ordinal);
}

}  // namespace gyre::device::cuda
