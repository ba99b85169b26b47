#include "collectives/nccl/backend.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "collectives/nccl/ending.h"
#include "collectives/nccl/operation.h"

namespace gyre::internal::nccl {

int VersionOf(const Api& api) {
  return api.version();
}

Backend::Backend(Api& api, Members members, std::shared_ptr<device::Gpu> gpu, std::shared_ptr<Memory> memory,
                 StartWatch start)
    : api_(api),
      members_(std::move(members)),
      gpu_(std::move(gpu)),
      memory_(std::move(memory)),
      start_(std::move(start)),
      connection_(std::make_shared<Connection>(api, gpu_, members_.rank(), members_.size())) {
  memory_->Attach(connection_);
}

Backend::~Backend() {
  if (scratch_ != nullptr) connection_->Keep(scratch_);
  if (connection_->started()) start_(connection_, connection_->lane(), std::make_shared<Ending>(connection_));
}

std::shared_ptr<Pollable> Backend::Make(const GpuCall& call) {
  return std::make_shared<Operation>(shared_from_this(), call);
}

absl::StatusOr<void*> Backend::Scratch(int64_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  // Twice as much each time: all that is kept together is no more than the last.
  const int64_t grown = std::max(bytes, 2 * scratch_bytes_);
  ASSIGN_OR_RETURN(void* const memory, gpu_->Allocate(grown));
  if (scratch_ != nullptr) connection_->Keep(scratch_);
  scratch_ = memory;
  scratch_bytes_ = grown;
  return scratch_;
}

void Backend::Watch() {
  if (flights_ != nullptr && flights_->goes_on()) return;
  flights_ = std::make_shared<Flights>(connection_, members_);
  start_(connection_, connection_->lane(), flights_);
}

std::shared_ptr<GpuBackend> MakeBackend(Api& api, std::shared_ptr<Group> group, std::shared_ptr<Team> team,
                                        std::shared_ptr<device::Gpu> gpu, std::shared_ptr<Memory> memory,
                                        StartWatch start) {
  return std::make_shared<Backend>(api, Members{std::move(group), std::move(team)}, std::move(gpu), std::move(memory),
                                   std::move(start));
}

}  // namespace gyre::internal::nccl
