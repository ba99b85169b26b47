#include "device/gpu_wait.h"

#include <sched.h>

#include <chrono>
#include <thread>

#include "gyre/status_macros.h"

namespace gyre::device {

absl::StatusOr<bool> AwaitEvent(Gpu& gpu, Gpu::Event event, TimePoint deadline) {
  constexpr int kQuickLooks = 100;
  for (int looks = 0;; ++looks) {
    ASSIGN_OR_RETURN(const bool done, gpu.Done(event));
    if (done) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    if (looks < kQuickLooks) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace gyre::device
