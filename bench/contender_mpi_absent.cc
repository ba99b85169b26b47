#include "contender.h"

namespace gyre::bench {

absl::StatusOr<std::unique_ptr<MpiSession>> MpiSession::Start() {
  return absl::UnimplementedError("this build found no Open MPI");
}

}  // namespace gyre::bench
