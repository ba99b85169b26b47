// The NCCL backend's face: carries the collectives of a communicator out whose ranks have GPUs of their own.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "collectives/gpu_backend.h"
#include "collectives/hierarchical/team.h"
#include "collectives/shm/group.h"
#include "device/gpu_allocator.h"

namespace gyre::internal::nccl {

class Api;
class Memory;

// Loads the module, once a process. kUnimplemented: this build, or this machine, has no libgyre_nccl or no NCCL; says
// where it was looked for.
absl::StatusOr<Api*> LoadApi();

// NCCL's, as it numbers them: 22809, say.
int VersionOf(const Api& api);

// Memory of a GPU from NCCL, which backends register with their communicators as it is used. Smaller pieces than
// `least`, in bytes, come from the GPU. What allocates and frees it is AllocatorOf(memory), which is the same object;
// `Has`: whether the byte lies in a piece of NCCL's.
std::shared_ptr<Memory> MakeMemory(Api& api, std::shared_ptr<device::Gpu> gpu, int64_t least);
std::shared_ptr<device::GpuAllocator> AllocatorOf(std::shared_ptr<Memory> memory);
bool Has(const Memory& memory, const void* data);

// Whether NCCL can carry the call out; alike on all ranks. Not: messages, which are matched pair by pair and
// independent of the collectives, where NCCL wants one order of all; barriers, which have no tensors; Adasum;
// reductions of 16-bit integers, which NCCL does not know.
bool Takes(const Call& call);

// Has the runtime drive `watch` in the lane, which `owner` keeps alive, beside what else it does.
using StartWatch = std::function<void(const std::shared_ptr<void>& owner, Lane& lane, std::shared_ptr<Pollable> watch)>;

// Of the communicator of `group`'s ranks, or of `team`'s (then `group` are those of this host; null: one host), whose
// GPUs all differ. The NCCL communicator is made by the first call. `memory`: that tensors may lie in; all ranks have
// one.
std::shared_ptr<GpuBackend> MakeBackend(Api& api, std::shared_ptr<Group> group, std::shared_ptr<Team> team,
                                        std::shared_ptr<device::Gpu> gpu, std::shared_ptr<Memory> memory,
                                        StartWatch start);

}  // namespace gyre::internal::nccl
