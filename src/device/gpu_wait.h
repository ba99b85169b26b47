// Waiting for a GPU by looking at an event, for those who may wait: no call of the GPU's that blocks.
#pragma once

#include <chrono>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "device/gpu.h"

namespace gyre::device {

// How long the end of an object that has queued something on a GPU waits for that; each object by itself.
inline constexpr std::chrono::seconds kLongestRest{2};

// Blocks until what the event's latest Record marked has been done, and the host sees what it wrote; false: it was not
// by `deadline`. Yields first, then looks every 50 us. Errors are Gpu::Done's.
absl::StatusOr<bool> AwaitEvent(Gpu& gpu, Gpu::Event event, TimePoint deadline);

}  // namespace gyre::device
