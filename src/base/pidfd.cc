#include "base/pidfd.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/read_file.h"

namespace gyre {

namespace {

constexpr size_t kLargestStat = 1 << 16;  // bytes of /proc/PID/stat

// Its number in our namespace of processes, from "Pid:\t<number>": 0 if it is not there; -1 once it has ended, or where
// that cannot be read, for want of descriptors, say.
pid_t PidOf(int pidfd) {
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", pidfd));
  if (!info) return -1;
  pid_t pid = 0;
  for (std::string field; info >> field;) {
    if (field == "Pid:") info >> pid;
  }
  return pid;
}

}  // namespace

// By number: glibc 2.36 declares its wrappers without extern "C".
UniqueFd OpenPidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool SignalPidfd(int pidfd, int signal) {
  return syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0;
}

std::optional<bool> IsStopped(int pidfd) {
  const pid_t pid = PidOf(pidfd);
  if (pidfd < 0 || pid == 0) return std::nullopt;
  if (pid < 0) return false;
  // Fails where the process has ended by now.
  const std::string text = ReadFile(absl::StrCat("/proc/", pid, "/stat"), kLargestStat).value_or("");
  const size_t name_end = text.rfind(')');  // "<pid> (<name>) <state> ...", and a name may hold anything
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  const char state = text[name_end + 2];
  return state == 'T' || state == 't';
}

}  // namespace gyre
