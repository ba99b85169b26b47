// What libgyre and libgyre_nccl, the module that links NCCL, say to each other. The module is loaded where GPUs of
// several ranks are to exchange (loader.cc), so that libgyre runs where no NCCL is: docs/gpu_backends.md.
#pragma once

#include "collectives/nccl/api.h"

namespace gyre::internal::nccl {

// The one function that the module exports, as "gyre_nccl_module".
struct Module {
  const char* version;  // of Gyre: must be the caller's
  Api* api;             // the process's; lives as long
};
using GetModule = const Module* (*)();

}  // namespace gyre::internal::nccl
