#include "transport/shm/meeting.h"

namespace gyre::shm {

void Meeting::Post() {
  mine().round.store(round_, std::memory_order_seq_cst);  // ordered before the looks at `sleepers` (Doorbell)
  RingAll();
}

void Meeting::RingAll() {
  for (int m = 0; m < size(); ++m) {
    if (m != self_) members_[static_cast<size_t>(m)].doorbell->Ring();
  }
}

}  // namespace gyre::shm
