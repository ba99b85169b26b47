#include "launch/root_cause.h"

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launch/exit_code.h"
#include "launch/signals.h"

namespace gyre::launch {

namespace {

constexpr auto kTie = std::chrono::milliseconds(100);

// Came from outside of the program, and not from gyrerun.
bool IsBlow(const RankEnd& end) {
  return end.lost || (end.signal != 0 && !end.asked_to);
}

}  // namespace

std::string HowItEnded(const RankEnd& end) {
  if (end.lost) return "was lost with its host";
  if (end.exec_error != 0) return absl::StrCat("could not be executed (", std::strerror(end.exec_error), ")");
  if (end.signal == 0) return absl::StrCat("exited with code ", end.code);
  return absl::StrCat("was killed by signal ", end.signal, " (", SignalDescription(end.signal), ")",
                      end.core_dumped ? ", core dumped," : "");
}

std::optional<RankEnd> FindRootCause(std::span<const RankEnd> ends) {
  std::optional<RankEnd> first;
  for (const RankEnd& end : ends) {
    if (!end.failed()) continue;
    if (!first) {
      first = end;
    } else if (IsBlow(end) && end.when - first->when <= kTie) {
      if (first->signal == 0 && first->exec_error == 0 && !first->lost) return end;
    }
  }
  return first;
}

int ExitCodeOf(const RankEnd& end) {
  if (end.exec_error != 0) return end.exec_error == ENOENT ? kExitNotFound : kExitNotExecutable;
  if (end.lost) return kExitSignalBase + SIGKILL;
  return end.signal != 0 ? kExitSignalBase + end.signal : end.code;
}

std::string Describe(const RankEnd& end, TimePoint start) {
  const double seconds = std::chrono::duration<double>(end.when - start).count();
  const std::string where = end.host.empty() ? "" : absl::StrCat(" on ", end.host);
  return absl::StrFormat("%s %d%s (pid %d) %s %.1f s after the start", end.server ? "server" : "rank", end.rank, where,
                         end.pid, HowItEnded(end), seconds);
}

}  // namespace gyre::launch
