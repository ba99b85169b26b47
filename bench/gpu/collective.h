// Collectives of Gyre on tensors that are on GPUs, in nccl-tests' columns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "contender.h"
#include "sweep.h"

namespace gyre::bench::gpu {

struct CollectiveOptions {
  SweepOptions sweep;
  bool against_nccl = false;
  bool against_copy = false;  // MakeCopyOnGpu
  bool against_host = false;  // MakeCopyByHost, and Gyre's own collectives of memory of the host
};

// Each rank takes the GPU whose number is its own on its host, modulo how many there are. `command`: as it was typed.
absl::Status RunCollective(Operation operation, const CollectiveOptions& options, const std::string& command);

// Gyre, in memory of Runtime::Allocate or, for plain buffers, of cudaMalloc. Waits for the GPU at the end of a sample,
// as nccl-tests does.
absl::StatusOr<std::unique_ptr<Contender>> MakeGyreOnGpu(Runtime& runtime, int gpu);

// NCCL itself. kUnimplemented where this build has none; kFailedPrecondition where ranks share a GPU, which NCCL
// refuses. Collective.
absl::StatusOr<std::unique_ptr<Contender>> MakeNccl(Communicator& world, int gpu);

// A copy of as many bytes as the size column has: within the GPU's memory; or to pinned memory of the host and, at the
// same time, as many back. Of each rank, all at once.
absl::StatusOr<std::unique_ptr<Contender>> MakeCopyOnGpu();
absl::StatusOr<std::unique_ptr<Contender>> MakeCopyByHost();

}  // namespace gyre::bench::gpu
