// The hierarchical backend's face: tensors on GPUs over several hosts, of which some have several ranks. These exchange
// on their GPUs first, so that each has a share of all of the host's to take through the host's memory and the network.
#pragma once

#include <functional>
#include <memory>

#include "collectives/gpu_backend.h"
#include "collectives/gpu_staging.h"
#include "collectives/host_calls.h"

namespace gyre::internal::gpu_hierarchical {

// `host`: of several hosts. `rings`: of the GPU that all tensors are on. `within`: of the ranks of this host
// (host.shared_group()), likewise; `taken_within`: whether the backends of all hosts take a call, alike on all ranks.
//
// The first call has the hosts connect. Where a rank of any host cannot, as an ipc backend says, it ends in
// kUnavailable on all ranks and changes nothing.
std::shared_ptr<GpuBackend> MakeBackend(HostCalls host, std::shared_ptr<staged::Rings> rings,
                                        std::shared_ptr<GpuBackend> within,
                                        std::function<bool(const Call&)> taken_within);

}  // namespace gyre::internal::gpu_hierarchical
