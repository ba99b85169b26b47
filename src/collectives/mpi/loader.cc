#include <dlfcn.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread.h"
#include "collectives/mpi/factory.h"
#include "collectives/mpi/module.h"
#include "gyre/version.h"

namespace gyre::internal::mpi {

namespace {

constexpr char kName[] = "libgyre_mpi.so";

// Beside the library or program that this code is in; empty if the system does not say.
std::string BesideLibgyre() {
  Dl_info info = {};
  if (dladdr(kName, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : absl::StrCat(path.substr(0, slash + 1), kName);
}

// Never closed: MPI does not bear to be. Global, because MPI loads parts that look for its own symbols.
absl::StatusOr<const Module*> LoadModule() {
  const std::string beside = BesideLibgyre();
  void* library = beside.empty() ? nullptr : dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL);
  std::string why;
  if (library == nullptr && !beside.empty()) why = absl::StrCat(dlerror(), "; ");
  if (library == nullptr) library = dlopen(kName, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return absl::UnimplementedError(absl::StrCat("GYRE_BACKEND=mpi: ", kName, " cannot be loaded: ", why, dlerror()));
  }
  const auto get = reinterpret_cast<GetModule>(dlsym(library, "gyre_mpi_module"));
  if (get == nullptr) return absl::FailedPreconditionError(absl::StrCat(kName, " is not Gyre's"));
  const Module* const module = get();
  if (std::string_view(module->version) == GYRE_VERSION_STRING) return module;
  return absl::FailedPreconditionError(
      absl::StrCat(kName, " is of Gyre ", module->version, ", not ", GYRE_VERSION_STRING));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Backend>> Backend::Load(int rank, int size, TimePoint deadline) {
  const SignalsBlocked blocked;  // for MPI's threads
  ASSIGN_OR_RETURN(const Module* const module, LoadModule());
  ASSIGN_OR_RETURN(auto transport, module->open(deadline));
  if (transport->rank() != rank || transport->size() != size) {
    return absl::FailedPreconditionError(absl::StrCat("GYRE_BACKEND=mpi: to MPI this is rank ", transport->rank(),
                                                      " of ", transport->size(), ", to Gyre rank ", rank, " of ", size,
                                                      ": start the job by mpirun"));
  }
  return std::make_shared<Backend>(std::move(transport));
}

Backend::Backend(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}
Backend::~Backend() = default;

}  // namespace gyre::internal::mpi
