#include "commands.h"

namespace gyre::bench {

absl::Status RunKernels(const KernelOptions& /*options*/) {
  return absl::UnimplementedError("this build found no Google Benchmark");
}

}  // namespace gyre::bench
