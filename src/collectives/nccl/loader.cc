#include <dlfcn.h>

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/nccl/factory.h"
#include "collectives/nccl/module.h"
#include "gyre/version.h"

namespace gyre::internal::nccl {

namespace {

constexpr char kName[] = "libgyre_nccl.so";

// Beside the library or program that this code is in; empty if the system does not say.
std::string Beside() {
  Dl_info info = {};
  if (dladdr(kName, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : absl::StrCat(path.substr(0, slash + 1), kName);
}

// Never closed: NCCL leaves threads behind.
void* Open(std::string& why) {
  const std::string beside = Beside();
  void* library = beside.empty() ? nullptr : dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr && !beside.empty()) why = absl::StrCat(dlerror(), "; ");
  if (library == nullptr) library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) absl::StrAppend(&why, dlerror());
  return library;
}

}  // namespace

absl::StatusOr<Api*> LoadApi() {
  std::string why;
  void* const library = Open(why);
  if (library == nullptr) return absl::UnimplementedError(absl::StrCat(kName, " cannot be loaded: ", why));
  const auto get = reinterpret_cast<GetModule>(dlsym(library, "gyre_nccl_module"));
  if (get == nullptr) return absl::FailedPreconditionError(absl::StrCat(kName, " is not Gyre's"));
  const Module* const module = get();
  if (std::string_view(module->version) == GYRE_VERSION_STRING) return module->api;
  return absl::FailedPreconditionError(
      absl::StrCat(kName, " is of Gyre ", module->version, ", not ", GYRE_VERSION_STRING));
}

}  // namespace gyre::internal::nccl
