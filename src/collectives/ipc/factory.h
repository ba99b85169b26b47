// The IPC backend's face: carries the calls of a communicator out whose ranks are on one host and reach each other's
// GPU memory: several processes on one GPU, which NCCL refuses, or GPUs that are each other's peers.
#pragma once

#include <memory>

#include "collectives/gpu_backend.h"
#include "collectives/shm/group.h"

namespace gyre::internal::ipc {

// Most ranks of a communicator.
inline constexpr int kMostRanks = device::Gpu::kMaxOperands;

// Whether the call can be carried out so; alike on all ranks. Not: messages, which the host's
// memory carries well; barriers, which have no tensors; Adasum.
bool Takes(const Call& call);

// Of the group's ranks, at most kMostRanks; `gpu`: this one's; `half`: bytes of each half of a rank's area on its GPU,
// alike on all ranks. Areas are allocated, and opened to the others, by the
// first call; where a rank cannot, that call ends in kUnavailable on all of them, names it and its reason, and changes
// nothing.
std::shared_ptr<GpuBackend> MakeBackend(std::shared_ptr<Group> group, std::shared_ptr<device::Gpu> gpu,
                                        int64_t half = 16 << 20);

}  // namespace gyre::internal::ipc
