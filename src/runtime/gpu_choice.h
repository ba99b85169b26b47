// Which backend carries the collectives of a communicator's GPU tensors: the same on all of its ranks, from what all of
// them say. Pure. The whole rule is here; docs/gpu_backends.md says why.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>

namespace gyre::internal {

// Where one rank's tensors are, as it tells the others: travels as it is.
struct GpuOffer {
  std::array<char, 16> uuid{};  // of the GPU
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
//   IPC           one host, some ranks on the same GPU, at most ipc::kMostRanks
//   hierarchical  several hosts, some of several ranks, and the ranks of each by themselves would go one of these ways
//   staged
// `offers`: by rank.
GpuChoice ChooseGpuCarrier(std::span<const GpuOffer> offers);

}  // namespace gyre::internal
