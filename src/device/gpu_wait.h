// Waiting for a GPU from the host, where there is no way around it.
#pragma once

#include <chrono>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "device/gpu.h"

namespace gyre::device {

// How long the end of what has queued something on a GPU waits for that, altogether.
inline constexpr std::chrono::seconds kLongestRest{2};

// Whether what the event's latest Record marked has been done by `deadline`, as Gpu::Done says. Blocks until then,
// first yielding, then looking every 50 us.
absl::StatusOr<bool> AwaitEvent(Gpu& gpu, Gpu::Event event, TimePoint deadline);

}  // namespace gyre::device
