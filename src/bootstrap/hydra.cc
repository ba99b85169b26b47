#include "bootstrap/hydra.h"

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/read_file.h"
#include "base/status.h"

namespace gyre {

namespace {

constexpr size_t kLargestProcStat = 1 << 16;  // bytes of /proc/PID/stat

// Field 22 of /proc/PID/stat, in clock ticks since boot; empty if there is no such process.
std::string StartTime(pid_t process) {
  const std::string text = ReadFile(absl::StrCat("/proc/", process, "/stat"), kLargestProcStat).value_or("");
  // The second field is a name in parentheses and may hold anything; the third follows the last parenthesis.
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos) return {};
  const std::vector<std::string> fields = absl::StrSplit(text.substr(name_end + 2), ' ');
  constexpr size_t kStartTime = 22 - 3;
  return fields.size() > kStartTime ? fields[kStartTime] : "";
}

}  // namespace

absl::StatusOr<std::string> HydraJobName(int pmi_fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(pmi_fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("PMI_FD=", pmi_fd,
                     " does not lead to MPICH's launcher: a program between it and this one closed "
                     "it, or it is another launcher's; set GYRE_STORE"));
  }
  const std::string start = StartTime(peer.pid);
  if (start.empty()) return absl::FailedPreconditionError("MPICH's launcher (PMI_FD) has ended");
  return absl::StrCat("hydra-", peer.pid, "-", start);
}

}  // namespace gyre
