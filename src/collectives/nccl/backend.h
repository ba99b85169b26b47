// Backend: the NCCL communicator of one of Gyre's, with what its calls share.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/gpu_backend.h"
#include "collectives/members.h"
#include "collectives/nccl/api.h"
#include "collectives/nccl/connection.h"
#include "collectives/nccl/factory.h"
#include "collectives/nccl/flights.h"
#include "collectives/nccl/memory.h"

namespace gyre::internal::nccl {

// Calls are made in one order, as of any communicator; otherwise thread-safe.
class Backend final : public GpuBackend, public std::enable_shared_from_this<Backend> {
 public:
  Backend(Api& api, Members members, std::shared_ptr<device::Gpu> gpu, std::shared_ptr<Memory> memory,
          StartWatch start);
  ~Backend() override;

  std::string_view name() const override { return "nccl"; }
  bool captures() const override { return true; }
  bool Takes(const Call& call) const override { return nccl::Takes(call); }
  std::shared_ptr<Pollable> Make(const GpuCall& call) override;
  bool sound() const override { return !connection_->aborted(); }

  Api& api() const { return api_; }
  const Members& members() const { return members_; }
  const Memory& memory() const { return *memory_; }
  const std::shared_ptr<Connection>& connection() const { return connection_; }

  // At least so much of the GPU's memory, for the call in course.
  absl::StatusOr<void*> Scratch(int64_t bytes);

  // Something was launched and given to the connection to watch.
  void Watch();

 private:
  Api& api_;
  const Members members_;
  const std::shared_ptr<device::Gpu> gpu_;
  const std::shared_ptr<Memory> memory_;
  const StartWatch start_;
  const std::shared_ptr<Connection> connection_;
  std::shared_ptr<Flights> flights_;  // the latest
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
};

}  // namespace gyre::internal::nccl
