// Which backend carries the collectives of a communicator's GPU tensors: the same on all of its ranks, from what all of
// them say. Pure. docs/gpu_backends.md
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace gyre::internal {

// Where one rank's tensors are, as it tells the others: travels as it is.
struct GpuOffer {
  std::array<char, 16> uuid{};  // of the GPU
  int32_t host = 0;             // of the rank: its number in the job
  int32_t nccl = 0;             // the version of the rank's NCCL; 0: it has none
};

enum class GpuCarrier { kStaged, kAlone, kIpc, kNccl };

// `offers`: by rank.
GpuCarrier ChooseGpuCarrier(std::span<const GpuOffer> offers);

}  // namespace gyre::internal
