#include "collectives/nccl/ending.h"

#include "base/thread.h"

namespace gyre::internal::nccl {

shm::Progress Ending::Poll() {
  if (!begun_) {
    begun_ = true;
    const auto end = [this] {
      connection_->End();
      ended_.store(true, std::memory_order_release);
    };
    if (auto thread = StartThread("an NCCL communicator's end", end); thread.ok()) {
      thread_ = *std::move(thread);
    } else {
      end();
    }
  }
  return ended_.load(std::memory_order_acquire) ? shm::Progress::kDone : shm::Progress::kNone;
}

}  // namespace gyre::internal::nccl
