#include "launch/restarts.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "launch/exit_code.h"
#include "launch/host_cooldown.h"
#include "launch/job_watcher.h"
#include "launch/now.h"
#include "launch/output_sink.h"
#include "launch/signals.h"
#include "launch/status_file.h"
#include "launch/termination_log.h"

namespace gyre::launch {

namespace {

constexpr Duration kLongestRestartPause = std::chrono::seconds(60);

// Between 0 and 1; the middle where there are no random numbers.
double Random() {
  uint32_t bits = 0;
  if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits) return 0.5;
  return bits / 4294967296.0;
}

// Until the pause is over; or a signal asks for the end, the guard has died, or --timeout is over: then gyrerun's exit
// code.
std::optional<int> Wait(Duration pause, const SupervisorContext& context) {
  const absl::StatusOr<UniqueFd> signals = OpenSignals();
  if (!signals.ok()) return kExitNotStarted;
  const TimePoint over = Now() + pause;
  const TimePoint end = std::min(over, context.end_by.value_or(over));
  while (Now() < end) {
    pollfd ready[] = {{signals->get(), POLLIN, 0}, {context.guard_pidfd, POLLIN, 0}};
    poll(ready, 2, PollMilliseconds(Now(), end));
    if (ready[1].revents != 0) return kExitSignalBase + SIGKILL;
    for (const int signal : ReadSignals(signals->get())) {
      if (signal == SIGCHLD || signal == SIGUSR1 || signal == SIGUSR2) continue;
      Say(absl::StrCat("the job was ended by ", SignalName(signal)));
      return kExitSignalBase + signal;
    }
  }
  if (end == over) return std::nullopt;
  Say(absl::StrFormat("the job was ended after --timeout %.10g s",
                      std::chrono::duration<double>(*context.options.timeout).count()));
  return kExitTimeout;
}

class JobRun {
 public:
  explicit JobRun(SupervisorContext& context)
      : context_(context),
        options_(context.options),
        cooldown_(context.slots, context.options.watch.placement, context.options.watch.host_cooldown),
        ranks_(context.hosts.empty() ? context.options.ranks
                                     : context.hosts.back().first + context.hosts.back().count) {
    getrlimit(RLIMIT_NOFILE, &files_);
  }

  int Run();

 private:
  absl::Status Prepare();
  bool Again(const JobEnd& end) const;
  void LeaveOutLost(const JobEnd& end);
  void OnProgramPhase(Phase phase);
  void Enter(Phase phase, const JobEnd& end = {});
  void Summarize(const JobEnd& end) const;

  SupervisorContext& context_;
  const Options& options_;
  rlimit files_{};  // what the ranks are to have; each run raises it for itself
  std::optional<StatusFile> status_;
  std::optional<JobWatcher> watcher_;
  HostCooldown cooldown_;
  int ranks_ = 0;
  Phase phase_ = Phase::kDeploying;
  const TimePoint begin_ = Now();
};

absl::Status JobRun::Prepare() {
  ASSIGN_OR_RETURN(context_.keys, MakeJobKeys());
  if (options_.timeout) context_.end_by = DeadlineAfter(begin_, *options_.timeout);
  watcher_.emplace(options_.watch, context_.keys.job_id, ranks_, [this](Phase phase) { OnProgramPhase(phase); });
  RETURN_IF_ERROR(watcher_->Open());
  context_.watcher = &*watcher_;
  context_.on_started = [this] { Enter(Phase::kProcessing); };
  watcher_->OnPhase(Phase::kDeploying, {});
  if (options_.status_file.empty()) return absl::OkStatus();
  const size_t hosts = WithServerHosts(context_.hosts, options_.server_hosts).size();
  const JobFacts facts{context_.keys.job_id, ranks_, static_cast<int>(std::max<size_t>(1, hosts)), getppid()};
  ASSIGN_OR_RETURN(status_, StatusFile::Open(options_.status_file, facts));
  return status_->Enter(Phase::kDeploying);
}

bool JobRun::Again(const JobEnd& end) const {
  if (context_.keys.epoch >= static_cast<uint64_t>(options_.max_restarts) || !end.again) return false;
  // What cannot be started at all is the user's to see, not to wait for.
  return end.started || context_.keys.epoch > 0;
}

// The program may say what makes no sense of a job; then nothing becomes of it.
void JobRun::OnProgramPhase(Phase phase) {
  if (phase != phase_ && IsLegal(phase_, phase)) Enter(phase);
}

// A later run need not wait for a host that was lost, where there are others.
void JobRun::LeaveOutLost(const JobEnd& end) {
  if (context_.slots.empty() || options_.watch.host_cooldown.count() == 0) return;
  for (const std::string& host : end.lost) cooldown_.OnLost(host, Now());
  context_.hosts = cooldown_.Place(ranks_, Now());
  for (const std::string& host : cooldown_.LeftOut(ranks_, Now())) {
    const bool serves = std::ranges::count(options_.server_hosts, host) > 0;
    Say(absl::StrCat(
        "host ", host,
        serves ? ": has no ranks in the next run, which waits for its servers" : ": left out of the next run",
        ": it was lost; see --host-cooldown"));
  }
}

void JobRun::Enter(Phase phase, const JobEnd& end) {
  phase_ = phase;
  const bool over = phase == Phase::kCompleted || phase == Phase::kFailed || phase == Phase::kHalted;
  if (watcher_) watcher_->OnPhase(phase, over ? std::optional(end.code) : std::nullopt);
  if (!status_) return;
  status_->set_epoch(context_.keys.epoch);
  status_->set_end(end.code, end.said);
  if (const absl::Status entered = status_->Enter(phase); !entered.ok()) Say(entered.message());
}

void JobRun::Summarize(const JobEnd& end) const {
  const double seconds = std::chrono::duration<double>(Now() - begin_).count();
  std::string text = absl::StrFormat("%s after %.1f s, %d restarts, exit code %d\n", PhaseName(EndPhase(end.code)),
                                     seconds, context_.keys.epoch, end.code);
  for (const std::string& line : end.said) absl::StrAppend(&text, line, "\n");
  WriteTerminationLog(kTerminationLog, text);
}

int JobRun::Run() {
  if (const absl::Status prepared = Prepare(); !prepared.ok()) {
    Say(absl::StrCat(prepared.message(), "; the job was not started"));
    const bool has_files =
        !options_.status_file.empty() || !options_.watch.metrics_file.empty() || !options_.watch.trace_usage.empty();
    return has_files ? kExitOutput : kExitNotStarted;
  }
  while (true) {
    JobEnd end = Supervise(context_);
    setrlimit(RLIMIT_NOFILE, &files_);
    if (Again(end)) {
      const auto restart = static_cast<int>(++context_.keys.epoch);
      const Duration pause = RestartPause(restart, options_.restart_delay, Random());
      Say(absl::StrFormat("restart %d of %d in %.1f s", restart, options_.max_restarts,
                          std::chrono::duration<double>(pause).count()));
      Enter(Phase::kDeploying, end);
      LeaveOutLost(end);
      const std::optional<int> ended = Wait(pause, context_);
      if (!ended) continue;
      end.code = *ended;
    }
    Enter(EndPhase(end.code), end);
    Summarize(end);
    return end.code;
  }
}

}  // namespace

Duration RestartPause(int restart, Duration first, double random) {
  const double times = std::pow(2.0, std::clamp(restart - 1, 0, 30));
  const auto longest = std::chrono::duration<double>(std::max(first, kLongestRestartPause));
  const auto pause = std::min(std::chrono::duration<double>(first) * times, longest);
  return std::chrono::duration_cast<Duration>(pause * (0.5 + random));
}

int RunJob(SupervisorContext context) {
  return JobRun(context).Run();
}

}  // namespace gyre::launch
