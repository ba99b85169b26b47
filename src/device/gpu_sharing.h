// What processes on one host do to work on each other's GPU memory: one exports, the others open. Got from
// Gpu::sharing. Who waits for whom is settled by shared events alone, in the streams' order: no kernel waits for
// another process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "device/gpu.h"

namespace gyre::device {

// Thread-safe, as Gpu.
class GpuSharing {
 public:
  // What memory or an event is opened by. Plain bytes, to be sent.
  using Handle = std::array<std::byte, 96>;

  virtual ~GpuSharing() = default;

  // Of memory of Gpu::Allocate, from its beginning. Once exported it must stay until those who opened it have closed
  // it or ended.
  virtual absl::StatusOr<Handle> ExportMemory(void* memory) = 0;

  // Memory of the same GPU, or of one that it reaches directly: where it is in this process. Once for each handle.
  //   kUnavailable  this process cannot reach it
  virtual absl::StatusOr<void*> OpenMemory(const Handle& handle) = 0;
  virtual void CloseMemory(void* opened) = 0;

  // Events that other processes may wait for, once they were recorded here: a Wait queued there after the Record here
  // has returned waits for that. Destroyed with Gpu::DestroyEvent.
  virtual absl::StatusOr<Gpu::Event> CreateEvent() = 0;
  virtual absl::StatusOr<Handle> ExportEvent(Gpu::Event event) = 0;

  // For Gpu::Wait, and not to be recorded.
  virtual absl::StatusOr<Gpu::Event> OpenEvent(const Handle& handle) = 0;
  virtual void CloseEvent(Gpu::Event opened) = 0;
};

}  // namespace gyre::device
