#include "base/pidfd.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace gyre {

// By number: glibc 2.36 declares its wrappers without extern "C".
UniqueFd OpenPidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool SignalPidfd(int pidfd, int signal) {
  return syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0;
}

}  // namespace gyre
