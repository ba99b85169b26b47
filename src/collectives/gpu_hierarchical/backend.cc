#include "collectives/gpu_hierarchical/backend.h"

#include <algorithm>

#include "collectives/gpu_hierarchical/operation.h"

namespace gyre::internal::gpu_hierarchical {

namespace {

// What is no larger than this part of a slot goes staged: two exchanges on the GPUs would cost more than what they
// save. An estimate, as of 256 KiB, for nothing was measured.
constexpr int64_t kSmallPart = 16;

}  // namespace

bool Backend::Takes(const Call& call) const {
  const int64_t bytes = std::max(call.in.bytes(), call.out.bytes());  // the whole: alike on all ranks
  return Chunks::Cuts(call, team()) && bytes > limits().slot_bytes / kSmallPart && taken_within_(call);
}

std::shared_ptr<Pollable> Backend::Make(const GpuCall& call) {
  return std::make_shared<Operation>(shared_from_this(), call);
}

absl::Status Backend::Explain(const absl::Status& part, const std::string& context) const {
  if (!absl::IsFailedPrecondition(part) || host_.group().node().closed()) return part;
  const auto cause = members_.FindCause(context);
  if (!cause) return part;
  members_.Break(*cause);
  return cause->status;
}

absl::Status Backend::BreakLike(const absl::Status& within_host, const std::string& context) const {
  if (host_.group().node().closed()) return within_host;
  return team().BreakLike(Explain(within_host, context));
}

std::shared_ptr<GpuBackend> MakeBackend(HostCalls host, std::shared_ptr<staged::Rings> rings,
                                        std::shared_ptr<GpuBackend> within,
                                        std::function<bool(const Call&)> taken_within) {
  return std::make_shared<Backend>(std::move(host), std::move(rings), std::move(within), std::move(taken_within));
}

}  // namespace gyre::internal::gpu_hierarchical
