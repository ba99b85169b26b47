// The backend of communicators of one rank: its collectives are copies, or scale, on the GPU itself.
#pragma once

#include <memory>

#include "collectives/gpu_backend.h"

namespace gyre::internal {

class GpuAlone final : public GpuBackend {
 public:
  std::string_view name() const override { return "alone"; }
  bool Takes(const Call& /*call*/) const override { return true; }
  bool captures() const override { return true; }
  std::shared_ptr<Pollable> Make(const GpuCall& call) override;
};

}  // namespace gyre::internal
