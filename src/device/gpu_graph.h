// GpuGraph: what one stream was given once, captured (Gpu::Capture), to be queued again as a whole by one call.
#pragma once

#include "absl/status/status.h"
#include "device/gpu.h"

namespace gyre::device {

// It holds addresses, not what lies there: kernels run with the arguments that they were queued with. Where it holds
// calls of a communicator of NCCL's, that does not end while the graph holds them: see Discard. Gone before its Gpu.
// Thread-safe.
class GpuGraph {
 public:
  // As Discard. REQUIRES: no call is under way.
  virtual ~GpuGraph() = default;

  // Ends the capture; from now on it can be launched. Once. Not OK: something that was queued, or was asked of the
  // stream meanwhile, cannot be captured; the stream is then as it was before, and the graph is of no use.
  virtual absl::Status End() = 0;

  // Queues all of it on `stream`, behind its launches before on any stream. kFailedPrecondition: its capture has not
  // ended well, or it was discarded.
  virtual absl::Status Launch(Gpu::Stream stream) = 0;

  // What it has of Gpu::Pack and Gpu::Unpack goes by this table from the next launch on, and by its buffer and scale
  // as before; null: is left out. The table must be there when it is launched, and may go afterwards as after any use
  // of it. kFailedPrecondition, and no other error is: as of Launch, which ends so as well. REQUIRES: it was captured
  // with a table whose buffer has this one's dtype.
  virtual absl::Status Update(const Gpu::Table* table) = 0;

  // Holds nothing from now on, or once a Launch that is under way returns: a capture ends, and nothing can be launched.
  // What was launched is done to its end. Does not wait for the GPU.
  virtual void Discard() = 0;
};

}  // namespace gyre::device
