#include "runtime/poll_wakers.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace gyre::internal {

PollWakers::~PollWakers() {
  for (const int descriptor : free_) close(descriptor);
}

int PollWakers::Take() {
  std::lock_guard lock(mutex_);
  int descriptor = -1;
  if (free_.empty()) {
    descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (descriptor < 0) return -1;
  } else {
    descriptor = free_.back();
    free_.pop_back();
  }
  taken_.push_back(descriptor);
  sleepers_.fetch_add(1);
  return descriptor;
}

void PollWakers::Give(int descriptor) {
  if (descriptor < 0) return;
  std::lock_guard lock(mutex_);
  sleepers_.fetch_sub(1);
  std::erase(taken_, descriptor);
  free_.push_back(descriptor);
  eventfd_t rings = 0;
  eventfd_read(descriptor, &rings);  // nothing to read is no error here
}

void PollWakers::WriteAll() {
  std::lock_guard lock(mutex_);
  for (const int descriptor : taken_) eventfd_write(descriptor, 1);
}

}  // namespace gyre::internal
