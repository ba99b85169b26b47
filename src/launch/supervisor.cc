#include "launch/supervisor.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launch/descendants.h"
#include "launch/ending.h"
#include "launch/exit_code.h"
#include "launch/job.h"
#include "launch/output_mux.h"
#include "launch/poller.h"
#include "launch/rank_environment.h"
#include "launch/rank_process.h"
#include "launch/report.h"
#include "launch/root_cause.h"
#include "launch/signals.h"

namespace gyre::launch {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLeftBehind = seconds(5);           // for what the ranks left behind to die of SIGKILL
constexpr Duration kSilence = seconds(1);              // of pipes that somebody out of reach still holds open
constexpr Duration kBetweenLooks = milliseconds(100);  // at the children; a look takes all of /proc
constexpr Duration kUnreadOutput = seconds(2);         // for a reader to take the rest, when the job was cut short

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

// A rank whose process was started. The dead are not reaped before the end, so that no number of theirs comes to mean
// another process (group) while we may still signal it.
struct Rank {
  pid_t pid = 0;
  UniqueFd pidfd;
  bool alive = true;
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorContext& context)
      : context_(context),
        options_(context.options),
        output_(poller_, {options_.tag_output, options_.timestamp_output, options_.output_dir}),
        ending_({options_.settle, options_.grace, options_.timeout}, Now()) {}

  int Run();

 private:
  // Starting
  absl::Status Prepare();
  absl::Status StartAll();
  absl::Status StartOne(int rank);

  // Events
  void Step(std::optional<TimePoint> deadline);
  void OnRankEnded(uint32_t index);
  void OnSignal(int signal);
  void LookAtChildren();
  void EndIfOnlyStoppedLeft();
  void OnGuardLost();
  void OnOutputLost();
  void SignalAll(int signal);

  // The end
  void EndWhatIsLeft();
  void Drain();
  void ReportRootCause();
  int ExitCode() const;

  std::string StoppedRanks() const;
  void Verbose(const std::string& line) {
    if (options_.verbose) output_.Say(line);
  }

  const SupervisorContext& context_;
  const Options& options_;
  Poller poller_;
  OutputMux output_;
  Ending ending_;
  TimePoint start_ = Now();
  std::optional<Job> job_;
  UniqueFd signals_;
  UniqueFd null_;
  UniqueFd exec_errors_;        // reading end; one record per rank that could not execute
  UniqueFd exec_errors_write_;  // closed once all have started
  rlimit files_{};
  std::vector<Rank> ranks_;
  std::vector<RankEnd> ends_;  // in the order in which they were seen
  std::vector<int> exec_error_of_;
  std::string stopped_;                        // the ranks that were stopped when the first one failed
  std::optional<TimePoint> look_at_children_;  // when, since some child has changed
  bool guard_lost_ = false;
  bool output_lost_ = false;
  bool hurry_ = false;       // somebody asked for the end: do not wait long for the output's reader
  bool all_reaped_ = false;  // the ranks' numbers may mean other processes from now on
};

absl::Status Supervisor::Prepare() {
  RETURN_IF_ERROR(poller_.Open());
  ASSIGN_OR_RETURN(signals_, OpenSignals());
  RETURN_IF_ERROR(poller_.AddReadable(signals_.get(), {Source::kSignals}));
  RETURN_IF_ERROR(poller_.AddReadable(context_.guard_pidfd, {Source::kGuard}));
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return ErrnoStatus("prctl(PR_SET_CHILD_SUBREAPER)");
  getrlimit(RLIMIT_NOFILE, &files_);
  rlimit more = files_;  // each rank takes up to five descriptors
  more.rlim_cur = more.rlim_max;
  setrlimit(RLIMIT_NOFILE, &more);
  null_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_) return ErrnoStatus("/dev/null");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoStatus("pipe2");
  exec_errors_.Reset(ends[0]);
  exec_errors_write_.Reset(ends[1]);
  ASSIGN_OR_RETURN(job_, Job::Start(options_.ranks));
  return absl::OkStatus();
}

absl::Status Supervisor::StartAll() {
  RETURN_IF_ERROR(Prepare());
  exec_error_of_.assign(options_.ranks, 0);
  start_ = Now();
  Verbose(absl::StrCat("job ", job_->identity().job_id, ": ", options_.ranks, " of ", context_.path, ", store at ",
                       job_->identity().store));
  for (int rank = 0; rank < options_.ranks; ++rank) {
    RETURN_IF_ERROR(Annotate(StartOne(rank), absl::StrCat("starting rank ", rank)));
  }
  exec_errors_write_.Reset();
  output_.Flush();  // what was said so far, before the first wait
  return absl::OkStatus();
}

absl::Status Supervisor::StartOne(int rank) {
  RankCommand command;
  command.rank = rank;
  command.path = context_.path;
  command.arguments = options_.command;
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  command.environment = RankEnvironment(inherited, options_.exports, job_->identity(), rank);
  // A terminal is not handed on: a rank's group is not its foreground group, and reading would stop the rank.
  command.stdin_fd = rank == 0 && isatty(0) == 0 ? 0 : null_.get();
  command.error_fd = exec_errors_write_.get();
  command.files = files_;
  ASSIGN_OR_RETURN(RankProcess process, StartRank(command));
  const int pidfd = process.pidfd.get();
  ranks_.push_back({process.pid, std::move(process.pidfd)});
  RETURN_IF_ERROR(poller_.AddReadable(pidfd, {Source::kRank, static_cast<uint32_t>(rank)}));
  Verbose(absl::StrCat("rank ", rank, ": pid ", process.pid, ": ", QuotedCommand(options_.command)));
  return output_.Add(rank, std::move(process.out), std::move(process.err));
}

void Supervisor::Step(std::optional<TimePoint> deadline) {
  const TimePoint next = std::min(deadline.value_or(TimePoint::max()), look_at_children_.value_or(TimePoint::max()));
  const std::vector<PollKey> ready =
      poller_.Wait(next == TimePoint::max() ? -1 : PollMilliseconds(Now(), next, 1'000'000));
  // Deaths first, in the order in which they came; then what may be a consequence of them.
  for (const PollKey& key : ready) {
    if (key.source == Source::kRank) OnRankEnded(key.index);
  }
  for (const PollKey& key : ready) {
    if (key.source == Source::kStream) output_.OnReadable(key.index);
    if (key.source == Source::kGuard) OnGuardLost();
    if (key.source != Source::kSignals) continue;
    for (const int signal : ReadSignals(signals_.get())) OnSignal(signal);
  }
  if (look_at_children_ && Now() >= *look_at_children_) LookAtChildren();
  SignalAll(ending_.OnTime(Now()));
  output_.Flush();
  if (output_.error() != 0 && !output_lost_) OnOutputLost();
}

void Supervisor::OnRankEnded(uint32_t index) {
  Rank& rank = ranks_[index];
  siginfo_t info{};
  if (!rank.alive || waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return;
  if (info.si_pid == 0) return;
  rank.alive = false;
  poller_.Remove(rank.pidfd.get());
  for (ExecError report{}; read(exec_errors_.get(), &report, sizeof report) == sizeof report;) {
    exec_error_of_[report.rank] = report.error;
  }
  RankEnd end{.rank = static_cast<int>(index), .pid = rank.pid, .when = Now()};
  if (info.si_code == CLD_EXITED) end.code = info.si_status;
  if (info.si_code != CLD_EXITED) end.signal = info.si_status;
  end.core_dumped = info.si_code == CLD_DUMPED;
  end.exec_error = exec_error_of_[index];
  end.asked_to = ending_.told();
  ends_.push_back(end);
  Verbose(Describe(end, start_));
  if (end.failed() && ending_.reason() == EndReason::kNone) {
    stopped_ = StoppedRanks();
    SignalAll(ending_.OnRankFailed(end.when));
  }
  EndIfOnlyStoppedLeft();
}

// The time to settle is for ranks that can use it.
void Supervisor::EndIfOnlyStoppedLeft() {
  if (ending_.reason() != EndReason::kRankFailed || ending_.told()) return;
  const auto goes_on = [](const Rank& rank) { return rank.alive && !IsStopped(rank.pid); };
  if (std::ranges::none_of(ranks_, goes_on)) SignalAll(ending_.OnOnlyStoppedLeft(Now()));
}

void Supervisor::OnSignal(int signal) {
  if (signal == SIGCHLD) {
    if (!look_at_children_) look_at_children_ = Now() + kBetweenLooks;
  } else if (signal == SIGUSR1 || signal == SIGUSR2) {
    SignalAll(signal);
  } else {
    hurry_ = true;
    SignalAll(ending_.OnSignal(signal, Now()));
  }
}

void Supervisor::LookAtChildren() {
  look_at_children_.reset();
  if (all_reaped_) return;
  std::vector<pid_t> pids;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    pids.push_back(ranks_[i].pid);
    siginfo_t info{};
    if (!ranks_[i].alive) continue;
    if (waitid(P_PID, static_cast<id_t>(ranks_[i].pid), &info, WSTOPPED | WCONTINUED | WNOHANG) != 0) continue;
    if (info.si_pid == 0) continue;
    Verbose(absl::StrCat("rank ", i, " (pid ", info.si_pid,
                         info.si_code == CLD_CONTINUED ? ") goes on" : ") was stopped by ",
                         info.si_code == CLD_CONTINUED ? "" : SignalName(info.si_status)));
  }
  ReapOrphans(pids);
  EndIfOnlyStoppedLeft();
}

void Supervisor::OnGuardLost() {
  if (guard_lost_) return;
  guard_lost_ = hurry_ = true;
  poller_.Remove(context_.guard_pidfd);
  SignalAll(ending_.OnGuardLost(Now()));
}

void Supervisor::OnOutputLost() {
  output_lost_ = true;
  output_.Say(absl::StrCat("output cannot be written (", std::strerror(output_.error()), "); ending the job"));
  SignalAll(ending_.OnOutputLost(Now()));
}

void Supervisor::SignalAll(int signal) {
  if (signal == 0 || all_reaped_) return;
  Verbose(absl::StrCat("sending ", SignalName(signal), " to the ranks"));
  const bool to_end = signal != SIGUSR1 && signal != SIGUSR2;
  for (const Rank& rank : ranks_) {
    // A dead rank's group may live on in its children, which are to end too.
    if (rank.alive || to_end) kill(-rank.pid, signal);
    // A stopped rank takes notice of nothing but KILL until it goes on.
    if (to_end && signal != SIGKILL) kill(-rank.pid, SIGCONT);
  }
}

std::string Supervisor::StoppedRanks() const {
  std::vector<std::string> stopped;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].alive && IsStopped(ranks_[i].pid)) stopped.push_back(absl::StrCat(i, " (pid ", ranks_[i].pid, ")"));
  }
  return absl::StrJoin(stopped, ", ");
}

void Supervisor::EndWhatIsLeft() {
  all_reaped_ = true;
  const bool left = !Descendants(getpid()).empty();
  if (left && !KillDescendants(Now() + kLeftBehind)) {
    output_.Say("some processes hang in the kernel and could not be ended");
  }
}

void Supervisor::Drain() {
  const TimePoint started = Now();
  const auto cut_short = [&] { return hurry_ || ending_.reason() == EndReason::kTimeout || output_lost_; };
  while (output_.open_streams() > 0 || output_.pending() > 0) {
    if (cut_short() && Now() - started > kUnreadOutput) break;
    // The writers are dead, so what is in the pipes is all there is, unless somebody out of our reach holds them.
    if (output_.open_streams() > 0 && output_.pending() == 0 && Now() - started > kSilence) output_.CloseStreams();
    Step(Now() + milliseconds(50));
  }
  output_.CloseStreams();
}

void Supervisor::ReportRootCause() {
  const auto cause = FindRootCause(ends_);
  switch (ending_.reason()) {
    case EndReason::kNone:
    case EndReason::kOutputLost: return;
    case EndReason::kGuardLost: return output_.Say("gyrerun was killed; the job has been ended");
    case EndReason::kSignal: return output_.Say(absl::StrCat("the job was ended by ", SignalName(ending_.signal())));
    case EndReason::kTimeout:
      return output_.Say(absl::StrFormat("the job was ended after --timeout %.10g s",
                                         std::chrono::duration<double>(*options_.timeout).count()));
    case EndReason::kRankFailed: break;
  }
  const size_t others = ends_.size() - 1;
  output_.Say(absl::StrCat(Describe(*cause, start_), "; ", others, others == 1 ? " other rank" : " other ranks",
                           " ended after it", stopped_.empty() ? "" : absl::StrCat("; stopped then: rank ", stopped_),
                           "; exit code ", ExitCode()));
}

int Supervisor::ExitCode() const {
  switch (ending_.reason()) {
    case EndReason::kNone: return 0;
    case EndReason::kRankFailed: return launch::ExitCodeOf(*FindRootCause(ends_));
    case EndReason::kTimeout: return kExitTimeout;
    case EndReason::kSignal: return kExitSignalBase + ending_.signal();
    case EndReason::kOutputLost: return output_.error() == EPIPE ? kExitSignalBase + SIGPIPE : kExitOutput;
    case EndReason::kGuardLost: break;
  }
  return kExitSignalBase + SIGKILL;
}

int Supervisor::Run() {
  const absl::Status started = StartAll();
  while (started.ok() && ends_.size() < ranks_.size() && !ending_.given_up()) Step(ending_.next());
  EndWhatIsLeft();
  Drain();
  if (!started.ok()) {
    output_.Say(absl::StrCat(started.message(), "; the job was not started; try: a smaller -np, or again later"));
  } else {
    ReportRootCause();
  }
  Drain();
  return started.ok() ? ExitCode() : kExitNotStarted;
}

}  // namespace

int Supervise(const SupervisorContext& context) {
  return Supervisor(context).Run();
}

}  // namespace gyre::launch
