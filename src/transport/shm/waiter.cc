#include "transport/shm/waiter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace gyre::shm {

void SleepOnDoorbell(Doorbell& doorbell, uint32_t rings, std::chrono::nanoseconds at_most) {
  timespec timeout{};
  timeout.tv_sec = at_most.count() / 1'000'000'000;
  timeout.tv_nsec = at_most.count() % 1'000'000'000;
  syscall(SYS_futex, &doorbell.rings, FUTEX_WAIT, rings, &timeout, nullptr, 0);
}

}  // namespace gyre::shm
