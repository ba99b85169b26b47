// In place of pmix.cc where the build found no PMIx.
#include "bootstrap/pmi.h"

namespace gyre {

absl::StatusOr<std::string> PmixBroadcast(int, const std::string&, TimePoint) {
  return absl::UnimplementedError(
      "this build of Gyre has no PMIx, by which mpirun's ranks meet: build it with PMIx's development package, start "
      "with gyrerun, or set GYRE_STORE and GYRE_SECRET_FILE");
}

}  // namespace gyre
