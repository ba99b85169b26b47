// Which backend carries the collectives of a communicator's GPU tensors: the same on all of its ranks, from what all of
// them say. Pure. The whole rule is here; docs/gpu_backends.md says why.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"

namespace gyre::internal {

// Where one rank's tensors are, as it tells the others: travels as it is, for all ranks run one version of Gyre.
struct GpuOffer {
  std::array<char, 16> uuid{};  // of the GPU
  int64_t place = 0;            // likewise: device::Gpu::place
  int32_t host = 0;             // of the rank: its number in the job
  int32_t nccl = 0;             // the version of the rank's NCCL; 0: it has none
};

enum class GpuCarrier { kStaged, kAlone, kIpc, kNccl, kHierarchical };

struct GpuChoice {
  GpuCarrier carrier = GpuCarrier::kStaged;

  // Of kHierarchical: by host, what its ranks exchange by: kAlone, kIpc or kNccl.
  std::map<int32_t, GpuCarrier> within{};
};

// The first that fits:
//   alone         one rank
//   NCCL          each rank on a GPU of its own, all with the same NCCL, over however many hosts
//   IPC           one host, some ranks on the same GPU or on slices of one, at most ipc::kMostRanks
//   hierarchical  several hosts, some of several ranks, and the ranks of each by themselves would go one of these ways
//   staged
// A GPU is a rank's own if no other rank has its uuid, and none of its host its place: slices of one GPU, which have a
// uuid each, NCCL takes for that GPU. `offers`: by rank.
GpuChoice ChooseGpuCarrier(std::span<const GpuOffer> offers);

// Why it is not NCCL where each rank is on a GPU of its own: which rank has none, or which two have different ones.
// Empty elsewhere. `name`: of a rank.
std::string WhyNotNccl(std::span<const GpuOffer> offers, absl::FunctionRef<std::string(int rank)> name);

}  // namespace gyre::internal
