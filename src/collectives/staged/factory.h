// The staged backend's face: tensors on GPUs by way of the host's memory, whatever joins the ranks. Every operation on
// every communicator, and the messages between two ranks.
#pragma once

#include <memory>

#include "collectives/gpu_backend.h"
#include "collectives/gpu_staging.h"
#include "collectives/host_calls.h"

namespace gyre::internal::staged {

// Of one rank, on one GPU.
class Backend final : public GpuBackend {
 public:
  // `rings`: of the GPU that all tensors are on.
  Backend(HostCalls host, std::shared_ptr<Rings> rings) : host_(std::move(host)), rings_(std::move(rings)) {}

  std::string_view name() const override { return "staged"; }
  bool Takes(const Call& /*call*/) const override { return true; }
  std::shared_ptr<Pollable> Make(const GpuCall& call) override;

 private:
  const HostCalls host_;
  const std::shared_ptr<Rings> rings_;
};

}  // namespace gyre::internal::staged
