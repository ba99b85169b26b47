// What carries the collectives of a communicator out whose tensors are on GPUs. A backend knows the communicator that
// it was made for; which one that has is chosen once, by all of its ranks together (runtime/gpu_choice.h).
#pragma once

#include <memory>
#include <string_view>

#include "collectives/call.h"
#include "collectives/lane.h"
#include "device/gpu.h"
#include "device/gpu_graph.h"

namespace gyre::internal {

// How a call is carried out, where that is not as usual; alike on all ranks.
struct GpuManner {
  // Not null: of an allreduce in place, which is in this graph. `capturing`: yet to be, for the graph captures the
  // stream of the call's tensors: what the call queues goes there, in the same order on all ranks, and its operation
  // has ended well once it has. It does not ask other ranks for anything: REQUIRES that they all make the call, and
  // that the backend has carried one out before. Otherwise the graph is launched in the call's place.
  std::shared_ptr<device::GpuGraph> graph = nullptr;
  bool capturing = false;

  // Tensors lie in memory of OpenedGpu::memory (runtime/gpus.h), and the memory and their places in it are as on all
  // other ranks: which over several hosts nobody finds out.
  bool same_place = false;
};

// A call on tensors that are on a GPU, as it was made.
struct GpuCall {
  Call call;  // Validate has found nothing wrong; the timeout is set. What its spans refer to outlives the operation
  std::shared_ptr<device::Gpu> gpu;  // that the call's tensors are on

  // Marks what had been queued on the streams of the call's input and output when the call was made: a backend has its
  // own streams wait for both before they read the one and write the other. Null: nothing to wait for.
  device::Gpu::Event input_ready = nullptr;
  device::Gpu::Event output_ready = nullptr;

  GpuManner manner = {};
  bool replays() const { return manner.graph != nullptr && !manner.capturing; }
};

// Thread-safe.
class GpuBackend {
 public:
  virtual ~GpuBackend() = default;

  virtual std::string_view name() const = 0;  // "staged"

  // Whether it can carry the call out, and should; alike on all ranks.
  virtual bool Takes(const Call& call) const = 0;

  // Whether calls may have graphs: the same on all ranks.
  virtual bool captures() const { return false; }

  // The call's operation, to be polled at once: it is its communicator's turn. It has ended well once the streams of
  // the call's input and output wait for whatever of it is still queued on the GPU. It deals with deadlines, losses
  // and given-up communicators as the host's operations do, and never blocks on the GPU. REQUIRES: Takes(call).
  virtual std::shared_ptr<Pollable> Make(const GpuCall& call) = 0;

  // False: it has given up what it had queued, which has ended on the GPU in whatever came of it, and is about to break
  // the communicator for it. For who hands results on to where nobody learns of that in time: asked when they are
  // there.
  virtual bool sound() const { return true; }
};

}  // namespace gyre::internal
