#include "launch/guard.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/pidfd.h"
#include "base/status.h"
#include "launch/descendants.h"
#include "launch/exit_code.h"
#include "launch/last_catch.h"
#include "launch/now.h"
#include "launch/output_sink.h"
#include "launch/signals.h"

namespace gyre::launch {

namespace {

// Beyond --grace: how long a supervisor that was asked to end may take before it is taken for stuck.
constexpr Duration kStuck = std::chrono::seconds(30);
constexpr Duration kBetweenKills = std::chrono::milliseconds(100);  // of one that hangs in the kernel

struct SupervisorProcess {
  pid_t pid;
  UniqueFd pidfd;
};

absl::StatusOr<SupervisorProcess> StartSupervisor(const SuperviseBody& body) {
  const UniqueFd own = OpenPidfd(getpid());
  if (!own) return ErrnoStatus("pidfd_open");
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus("fork");
  // In a group of its own: what a terminal sends to gyrerun's group comes to the guard alone, who passes it on once.
  setpgid(pid, 0);
  if (pid == 0) std::exit(RunWithLastCatch([&] { return body(own.get()); }));
  SupervisorProcess child{pid, OpenPidfd(pid)};
  if (child.pidfd) return child;
  const absl::Status status = ErrnoStatus("pidfd_open");
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return status;
}

// Passes signals on until the supervisor has ended, and returns how it did.
siginfo_t WaitForSupervisor(const SupervisorProcess& child, int signals, int hangup_fd, Duration patience) {
  std::optional<TimePoint> stuck;
  siginfo_t info{};
  for (;;) {
    pollfd ready[] = {{child.pidfd.get(), POLLIN, 0}, {signals, POLLIN, 0}, {hangup_fd, 0, 0}};
    poll(ready, 3, stuck ? PollMilliseconds(Now(), *stuck) : -1);
    if (ready[2].revents != 0) {
      hangup_fd = -1;
      if (!stuck) stuck = Now() + patience;
    }
    for (const int signal : ReadSignals(signals)) {
      if (signal == SIGCHLD) continue;
      kill(child.pid, signal);
      if (signal != SIGUSR1 && signal != SIGUSR2 && !stuck) stuck = Now() + patience;
    }
    if (stuck && Now() > *stuck) {
      kill(child.pid, SIGKILL);
      stuck = Now() + kBetweenKills;
    }
    if (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) return info;
  }
}

absl::StatusOr<int> Run(Duration grace, int hangup_fd, const SuperviseBody& body) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return ErrnoStatus("prctl(PR_SET_CHILD_SUBREAPER)");
  ASSIGN_OR_RETURN(const UniqueFd signals, TakeSignals());
  ASSIGN_OR_RETURN(const SupervisorProcess child, StartSupervisor(body));
  const siginfo_t end = WaitForSupervisor(child, signals.get(), hangup_fd, grace + kStuck);
  const bool all_ended = KillDescendants(Now() + kLeftBehind);
  if (!all_ended) Say("some processes hang in the kernel and could not be ended");
  if (end.si_code == CLD_EXITED) return end.si_status;
  Say(absl::StrCat("the supervisor (pid ", child.pid, ") was killed by signal ", end.si_status, " (",
                   SignalDescription(end.si_status), "); the job has been ended"));
  return kExitSignalBase + end.si_status;
}

}  // namespace

int RunGuarded(Duration grace, int hangup_fd, const SuperviseBody& body) {
  const absl::StatusOr<int> code = Run(grace, hangup_fd, body);
  if (code.ok()) return *code;
  Say(absl::StrCat(code.status().message(), "; the job was not started; try: again later"));
  return kExitNotStarted;
}

}  // namespace gyre::launch
