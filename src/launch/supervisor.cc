#include "launch/supervisor.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launch/crew.h"
#include "launch/ending.h"
#include "launch/exit_code.h"
#include "launch/local_crew.h"
#include "launch/now.h"
#include "launch/output_mux.h"
#include "launch/poller.h"
#include "launch/remote_crew.h"
#include "launch/report.h"
#include "launch/root_cause.h"
#include "launch/signals.h"

namespace gyre::launch {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kStacksTime = seconds(5);      // from --timeout to the end, for --stack-on-hang
constexpr size_t kLastLines = 10;                 // of the rank that failed first
constexpr Duration kUnreadOutput = seconds(2);    // for a reader to take the rest, when the job was cut short
constexpr Duration kOutputUnderWay = seconds(8);  // for hosts to bring the rest, when it was given up

std::optional<Duration> TimeLeft(const SupervisorContext& context) {
  if (!context.end_by) return std::nullopt;
  const Duration stacks = context.options.watch.stack_on_hang ? kStacksTime : Duration::zero();
  return std::max(Duration::zero(), *context.end_by - Now()) + stacks;
}

class Supervisor final : public CrewEvents {
 public:
  explicit Supervisor(const SupervisorContext& context)
      : context_(context),
        options_(context.options),
        watcher_(*context.watcher),
        output_(poller_, {options_.tag_output, options_.timestamp_output, options_.output_dir, context.keys.epoch > 0,
                          options_.watch.shown_ranks}),
        ending_({options_.settle, options_.grace, TimeLeft(context)}, Now()) {
    if (context.hosts.empty()) {
      crew_ = std::make_unique<LocalCrew>(options_, context.path, context.keys, poller_, output_, *this);
    } else {
      crew_ = std::make_unique<RemoteCrew>(options_, context.hosts, context.keys, poller_, output_, *this);
    }
  }

  JobEnd Run();

  // What the crew tells.
  void OnStarted() override {
    start_ = Now();
    started_ = true;
    watcher_.OnStarted(start_);
    if (context_.on_started) context_.on_started();
  }
  void OnRankEnded(RankEnd end) override;
  void OnRankStoppedOrNot() override;
  void Verbose(const std::string& line) override {
    if (options_.verbose) output_.Say(line);
  }
  bool told() const override { return ending_.told(); }
  WatchEvents& watch() override { return watcher_; }

 private:
  absl::Status Prepare();

  // Events
  void Step(std::optional<TimePoint> deadline);
  void OnSignal(int signal);
  void OnGuardLost();
  void OnOutputLost();
  void SignalAll(int signal);
  void Watch(TimePoint now);

  // The end
  void EndWhatIsLeft();
  void Drain();
  void ReportRootCause();
  void SayWhy(std::string line);
  int ExitCode() const;
  bool EndedInOrder() const;
  bool AgainMayHelp() const;
  std::vector<std::string> LostHosts() const;

  const SupervisorContext& context_;
  const Options& options_;
  JobWatcher& watcher_;
  Poller poller_;
  OutputMux output_;
  Ending ending_;
  std::unique_ptr<Crew> crew_;
  TimePoint start_ = Now();
  UniqueFd signals_;
  std::vector<RankEnd> ends_;  // in the order in which they were seen
  std::string stopped_;        // the ranks that were stopped when the first one failed
  bool guard_lost_ = false;
  bool output_lost_ = false;
  bool started_ = false;
  std::vector<std::string> said_;  // why the job has ended
  std::optional<TimePoint> stacks_at_;
  bool hurry_ = false;  // somebody asked for the end: do not wait long for the output's reader
};

absl::Status Supervisor::Prepare() {
  RETURN_IF_ERROR(poller_.Open());
  ASSIGN_OR_RETURN(signals_, OpenSignals());
  RETURN_IF_ERROR(poller_.AddReadable(signals_.get(), {Source::kSignals}));
  return poller_.AddReadable(context_.guard_pidfd, {Source::kGuard});
}

void Supervisor::Step(std::optional<TimePoint> deadline) {
  const TimePoint watch = std::min(watcher_.next().value_or(TimePoint::max()), stacks_at_.value_or(TimePoint::max()));
  const TimePoint next =
      std::min({deadline.value_or(TimePoint::max()), crew_->next().value_or(TimePoint::max()), watch});
  const std::vector<PollKey> ready =
      poller_.Wait(next == TimePoint::max() ? -1 : PollMilliseconds(Now(), next, 1'000'000));
  // Deaths first, in the order in which they came; then what may be a consequence of them.
  for (const PollKey& key : ready) {
    if (key.source == Source::kRank) crew_->OnEvent(key);
  }
  for (const PollKey& key : ready) {
    if (key.source == Source::kStream) output_.OnReadable(key.index);
    if (key.source == Source::kGuard) OnGuardLost();
    if (key.source >= Source::kHostOutput) crew_->OnEvent(key);
    if (key.source != Source::kSignals) continue;
    for (const int signal : ReadSignals(signals_.get())) OnSignal(signal);
  }
  SignalAll(ending_.OnTime(Now()));
  output_.Flush();
  crew_->OnTime(Now());
  Watch(Now());
  output_.Flush();
  if (output_.error() != 0 && !output_lost_) OnOutputLost();
}

void Supervisor::Watch(TimePoint now) {
  watcher_.OnTime(now);
  const bool late = stacks_at_ && now >= *stacks_at_;
  if (late) stacks_at_.reset();
  if ((!watcher_.HangBegins(now) && !late) || !started_ || ending_.told()) return;
  output_.Say(late ? "--timeout is over; the stacks of all ranks follow"
                   : "nothing moves any more; the stacks of all ranks follow");
  crew_->TakeStacks();
}

void Supervisor::OnRankEnded(RankEnd end) {
  if (!end.server) watcher_.OnRankEnded(end.rank);
  Verbose(Describe(end, start_));
  const bool first_failure = end.failed() && ending_.reason() == EndReason::kNone;
  ends_.push_back(std::move(end));
  if (first_failure) {
    stopped_ = absl::StrJoin(crew_->Stopped(), ", ");
    SignalAll(ending_.OnRankFailed(Now()));
  }
  OnRankStoppedOrNot();
}

// The time to settle is for ranks that can use it.
void Supervisor::OnRankStoppedOrNot() {
  if (ending_.reason() != EndReason::kRankFailed || ending_.told()) return;
  if (!crew_->any_goes_on()) SignalAll(ending_.OnOnlyStoppedLeft(Now()));
}

void Supervisor::OnSignal(int signal) {
  if (signal == SIGCHLD) {
    crew_->OnChildChanged();
  } else if (signal == SIGUSR1 || signal == SIGUSR2) {
    SignalAll(signal);
  } else {
    hurry_ = true;
    SignalAll(ending_.OnSignal(signal, Now()));
  }
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
  if (signal == 0 || crew_->ended()) return;
  Verbose(absl::StrCat("sending ", SignalName(signal), " to the ranks"));
  crew_->Signal(signal);
}

void Supervisor::EndWhatIsLeft() {
  if (!crew_->EndWhatIsLeft()) output_.Say("some processes hang in the kernel and could not be ended");
}

void Supervisor::Drain() {
  const TimePoint started = Now();
  const auto cut_short = [&] { return hurry_ || ending_.reason() == EndReason::kTimeout || output_lost_; };
  while (output_.open_streams() > 0 || output_.pending() > 0 || crew_->output_under_way()) {
    const auto passed = Now() - started;
    const bool unread = output_.pending() > 0 || !crew_->output_under_way();
    if (cut_short() && unread && passed > kUnreadOutput) break;
    if ((cut_short() || ending_.given_up()) && passed > kOutputUnderWay) break;
    // The writers are dead, so what is in the pipes is all there is, unless somebody out of our reach holds them.
    const bool idle = output_.pending() == 0 && !crew_->output_under_way();
    if (output_.open_streams() > 0 && idle && passed > kPipeSilence) output_.CloseStreams();
    Step(Now() + milliseconds(50));
  }
  output_.CloseStreams();
}

void Supervisor::ReportRootCause() {
  switch (ending_.reason()) {
    case EndReason::kNone:
    case EndReason::kOutputLost: return;
    case EndReason::kGuardLost: return SayWhy("gyrerun was killed; the job has been ended");
    case EndReason::kSignal:
      return SayWhy(absl::StrCat("the job was ended by ", SignalName(ending_.signal()),
                                 ExitCode() == kExitHalted ? "; all ranks ended in order; exit code 75" : ""));
    case EndReason::kTimeout:
      return SayWhy(absl::StrFormat("the job was ended after --timeout %.10g s",
                                    std::chrono::duration<double>(*options_.timeout).count()));
    case EndReason::kRankFailed: break;
  }
  const RankEnd cause = *FindRootCause(ends_);
  const auto others = std::ranges::count(ends_, false, &RankEnd::server) - (cause.server ? 0 : 1);
  SayWhy(absl::StrCat(Describe(cause, start_), "; ", others, others == 1 ? " other rank" : " other ranks",
                      " ended after it", stopped_.empty() ? "" : absl::StrCat("; stopped then: rank ", stopped_),
                      "; exit code ", ExitCode()));
  // Servers are numbered from 0 as well, and their output follows that of the ranks.
  const int number = cause.server ? crew_->size() + cause.rank : cause.rank;
  const std::vector<std::string> lines = output_.LastLines(number, kLastLines);
  if (lines.empty() || (crew_->size() == 1 && !cause.server)) return;  // alone, its lines are all that was printed
  SayWhy(absl::StrCat("the last lines of ", cause.server ? "server " : "rank ", cause.rank, ":"));
  for (const std::string& line : lines) SayWhy(absl::StrCat("  ", OneLine(line)));
}

void Supervisor::SayWhy(std::string line) {
  output_.Say(line);
  said_.push_back(std::move(line));
}

// Of a job that was asked to end by SIGTERM: each rank took that as what it was, and exited with 0 or with the code
// that says that it can go on; at least one said that.
bool Supervisor::EndedInOrder() const {
  const auto in_order = [](const RankEnd& end) {
    return end.signal == 0 && !end.lost && (end.code == 0 || end.code == kExitHalted);
  };
  return ending_.reason() == EndReason::kSignal && ending_.signal() == SIGTERM && !ends_.empty() &&
         static_cast<int>(ends_.size()) == crew_->size() && std::ranges::all_of(ends_, in_order) &&
         std::ranges::any_of(ends_, [](const RankEnd& end) { return end.code == kExitHalted; });
}

bool Supervisor::AgainMayHelp() const {
  if (hurry_ || guard_lost_ || output_lost_) return false;  // somebody wants the end
  if (crew_->failure()) return crew_->failure()->exit_code == kExitNotStarted;
  if (ending_.reason() != EndReason::kRankFailed) return false;
  const RankEnd cause = *FindRootCause(ends_);
  return cause.exec_error == 0 && ExitCode() != kExitHalted;
}

std::vector<std::string> Supervisor::LostHosts() const {
  std::vector<std::string> lost;
  for (const RankEnd& end : ends_) {
    if (end.lost && !std::ranges::count(lost, end.host)) lost.push_back(end.host);
  }
  return lost;
}

int Supervisor::ExitCode() const {
  switch (ending_.reason()) {
    case EndReason::kNone: return 0;
    case EndReason::kRankFailed: return launch::ExitCodeOf(*FindRootCause(ends_));
    case EndReason::kTimeout: return kExitTimeout;
    case EndReason::kSignal: return EndedInOrder() ? kExitHalted : kExitSignalBase + ending_.signal();
    case EndReason::kOutputLost: return output_.error() == EPIPE ? kExitSignalBase + SIGPIPE : kExitOutput;
    case EndReason::kGuardLost: break;
  }
  return kExitSignalBase + SIGKILL;
}

JobEnd Supervisor::Run() {
  if (const absl::Status prepared = Prepare(); !prepared.ok()) {
    output_.Say(absl::StrCat(prepared.message(), "; the job was not started; try: again later"));
    output_.Flush();
    return {.code = kExitNotStarted};
  }
  watcher_.BeginRun(output_, context_.keys.epoch);
  if (context_.end_by && options_.watch.stack_on_hang) stacks_at_ = context_.end_by;
  crew_->Start();
  output_.Flush();  // what was said so far, before the first wait
  while (!crew_->failure() && !crew_->ended() && !ending_.given_up()) Step(ending_.next());
  watcher_.EndRun();
  EndWhatIsLeft();
  Drain();
  crew_->Close();
  // Of several hosts, the first end by time need not be the first that was heard of.
  std::ranges::stable_sort(ends_, {}, &RankEnd::when);
  if (crew_->failure()) {
    SayWhy(crew_->failure()->line);
    for (const std::string& line : crew_->failure()->table) output_.Say(line);
  } else {
    ReportRootCause();
  }
  Drain();
  const int code = crew_->failure() ? crew_->failure()->exit_code : ExitCode();
  return {.code = code, .started = started_, .again = AgainMayHelp(), .said = said_, .lost = LostHosts()};
}

}  // namespace

JobEnd Supervise(const SupervisorContext& context) {
  return Supervisor(context).Run();
}

}  // namespace gyre::launch
