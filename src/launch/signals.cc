#include "launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

// Those that are ignored stay out of it: once blocked, they would be queued, and read, all the same.
sigset_t Taken() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

absl::StatusOr<UniqueFd> OpenSignals() {
  const sigset_t set = Taken();
  UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return ErrnoStatus("signalfd");
  return fd;
}

absl::StatusOr<UniqueFd> TakeSignals() {
  // A parent that ignores CHLD would have our children vanish unseen.
  signal(SIGCHLD, SIG_DFL);
  for (int ignored : {SIGPIPE, SIGTSTP, SIGTTOU}) signal(ignored, SIG_IGN);
  const sigset_t set = Taken();
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return ErrnoStatus("sigprocmask");
  return OpenSignals();
}

std::vector<int> ReadSignals(int fd) {
  std::vector<int> signals;
  signalfd_siginfo info;
  while (read(fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

std::string SignalDescription(int signal) {
  const char* text = sigdescr_np(signal);
  return text != nullptr ? text : absl::StrCat("signal ", signal);
}

}  // namespace gyre::launch
