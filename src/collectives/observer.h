// CallObserver: is told of every call that has ended, for timelines and counters. Where there is none, calls pay for no
// more than a look at a null pointer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace gyre::internal {

// First the kinds of calls, in the order of CallKind (call.h), which begins at 1.
enum class Activity : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll,
  kBarrier,
  kMessage,
  kBucket,        // gradients that are reduced together
  kGradientWait,  // GradientReducer's Wait and WaitFor
};

inline constexpr size_t kActivities = 10;

constexpr const char* ActivityName(Activity activity) {
  constexpr const char* kNames[kActivities] = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                                               "reduce",    "alltoall",       "barrier",   "message",
                                               "bucket",    "gradient_wait"};
  return kNames[static_cast<size_t>(activity)];
}

struct Observed {
  Activity activity = Activity::kBarrier;
  bool asynchronous = false;  // began on one thread, may have ended on another
  bool failed = false;
  int64_t bytes = 0;  // of the longer of its buffers
  TimePoint begin{};  // the call; of asynchronous ones, from when they were queued
  TimePoint end{};
};

class CallObserver {
 public:
  virtual ~CallObserver() = default;

  // From any thread. Neither blocks nor allocates.
  virtual void Ended(const Observed& observed) = 0;
};

}  // namespace gyre::internal
