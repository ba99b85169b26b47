#include "launch/local_ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launch/descendants.h"
#include "launch/now.h"

namespace gyre::launch {

absl::Status LocalRanks::Prepare() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return ErrnoStatus("prctl(PR_SET_CHILD_SUBREAPER)");
  getrlimit(RLIMIT_NOFILE, &files_);
  rlimit more = files_;  // each rank takes up to five descriptors
  more.rlim_cur = more.rlim_max;
  setrlimit(RLIMIT_NOFILE, &more);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoStatus("pipe2");
  exec_errors_.Reset(ends[0]);
  exec_errors_write_.Reset(ends[1]);
  return absl::OkStatus();
}

absl::StatusOr<LocalRanks::Started> LocalRanks::Start(RankCommand command) {
  command.error_fd = exec_errors_write_.get();
  command.files = files_;
  ASSIGN_OR_RETURN(RankProcess process, StartRank(command));
  const int pidfd = process.pidfd.get();
  ranks_.push_back({command.rank, process.pid, std::move(process.pidfd)});
  ++alive_;
  RETURN_IF_ERROR(poller_.AddReadable(pidfd, {Source::kRank, static_cast<uint32_t>(ranks_.size() - 1)}));
  return Started{process.pid, std::move(process.out), std::move(process.err)};
}

void LocalRanks::ReadExecErrors() {
  for (ExecError report{}; read(exec_errors_.get(), &report, sizeof report) == sizeof report;) {
    // Of a rank that was started several times, the last is meant.
    const auto rank =
        std::find_if(ranks_.rbegin(), ranks_.rend(), [&](const Rank& r) { return r.rank == report.rank; });
    if (rank != ranks_.rend()) rank->exec_error = report.error;
  }
}

std::optional<RankEnd> LocalRanks::OnReadable(uint32_t index) {
  if (index >= ranks_.size()) return std::nullopt;
  Rank& rank = ranks_[index];
  siginfo_t info{};
  if (!rank.alive || waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return {};
  if (info.si_pid == 0) return std::nullopt;
  rank.alive = false;
  --alive_;
  poller_.Remove(rank.pidfd.get());
  rank.pidfd.Reset();  // one that is started again has another
  ReadExecErrors();
  RankEnd end{.rank = rank.rank, .pid = rank.pid, .when = Now()};
  if (info.si_code == CLD_EXITED) end.code = info.si_status;
  if (info.si_code != CLD_EXITED) end.signal = info.si_status;
  end.core_dumped = info.si_code == CLD_DUMPED;
  end.exec_error = rank.exec_error;
  return end;
}

void LocalRanks::KillGroup(uint32_t index) {
  if (!all_reaped_) kill(-ranks_[index].pid, SIGKILL);
}

void LocalRanks::SignalFrom(int from, int signal) {
  for (const Rank& rank : ranks_) {
    if (!all_reaped_ && rank.alive && rank.rank >= from) kill(-rank.pid, signal);
  }
}

void LocalRanks::Signal(int signal, int bound) {
  if (all_reaped_) return;
  const bool to_end = signal != SIGUSR1 && signal != SIGUSR2;
  for (const Rank& rank : ranks_) {
    if (rank.rank >= bound) continue;
    // A dead rank's group may live on in its children, which are to end too.
    if (rank.alive || to_end) kill(-rank.pid, signal);
    // A stopped rank takes notice of nothing but KILL until it goes on.
    if (to_end && signal != SIGKILL) kill(-rank.pid, SIGCONT);
  }
}

std::vector<LocalRanks::Change> LocalRanks::LookAtChildren() {
  std::vector<Change> changes;
  if (all_reaped_) return changes;
  std::vector<pid_t> pids;
  for (const Rank& rank : ranks_) {
    pids.push_back(rank.pid);
    siginfo_t info{};
    if (!rank.alive) continue;
    if (waitid(P_PID, static_cast<id_t>(rank.pid), &info, WSTOPPED | WCONTINUED | WNOHANG) != 0) continue;
    if (info.si_pid == 0) continue;
    changes.push_back({rank.rank, rank.pid, info.si_code == CLD_CONTINUED ? 0 : info.si_status});
  }
  ReapOrphans(pids);
  return changes;
}

bool LocalRanks::any_goes_on(int bound) const {
  return std::ranges::any_of(
      ranks_, [bound](const Rank& rank) { return rank.rank < bound && rank.alive && !IsStopped(rank.pid); });
}

std::vector<std::string> LocalRanks::Stopped(int bound) const {
  std::vector<std::string> stopped;
  for (const Rank& rank : ranks_) {
    if (rank.rank < bound && rank.alive && IsStopped(rank.pid))
      stopped.push_back(absl::StrCat(rank.rank, " (pid ", rank.pid, ")"));
  }
  return stopped;
}

bool LocalRanks::KillWhatIsLeft() {
  all_reaped_ = true;
  return Descendants(getpid()).empty() || KillDescendants(Now() + kLeftBehind);
}

}  // namespace gyre::launch
