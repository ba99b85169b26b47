#include "launch/local_crew.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launch/exit_code.h"
#include "launch/now.h"
#include "launch/rank_environment.h"
#include "launch/report.h"
#include "launch/signals.h"

namespace gyre::launch {

void LocalCrew::Start() {
  const absl::Status started = StartAll();
  if (started.ok()) return;
  failure_ = {absl::StrCat(started.message(), "; the job was not started; try: a smaller -np, or again later"),
              kExitNotStarted};
}

absl::Status LocalCrew::StartAll() {
  RETURN_IF_ERROR(ranks_.Prepare());
  null_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_) return ErrnoStatus("/dev/null");
  ASSIGN_OR_RETURN(job_, Job::Serve(keys_, options_.ranks, "127.0.0.1", options_.restart_rank > 0));
  RETURN_IF_ERROR(watch_.Prepare(options_.watch.settings, 0, options_.ranks));
  events_.OnStarted();
  events_.Verbose(absl::StrCat("job ", job_->identity().job_id, ": ", options_.ranks, " of ", path_, ", store at ",
                               job_->identity().store));
  if (options_.has_servers()) RETURN_IF_ERROR(servers_.Open("127.0.0.1", 0, options_.ServersFor(options_.ranks)));
  const int processes = options_.ranks + servers_.count();
  for (int start = 0; start < processes; ++start) {
    const int number = (start + options_.ranks) % processes;  // servers first
    RETURN_IF_ERROR(Annotate(StartOne(number), absl::StrCat("starting ", NameOf(number))));
  }
  working_ = options_.ranks;
  if (options_.restart_rank == 0) ranks_.AllStarted();
  return absl::OkStatus();
}

std::string LocalCrew::NameOf(int number) const {
  return IsServer(number) ? absl::StrCat("server ", number - options_.ranks) : absl::StrCat("rank ", number);
}

std::vector<std::string> LocalCrew::Environment(int number, uint64_t life) const {
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  std::vector<std::string> exports = options_.exports;
  if (!options_.interface.empty()) exports.push_back(absl::StrCat("GYRE_INTERFACE=", options_.interface));
  if (servers_.count() > 0) exports.push_back(StrategyVariable(exports, servers_.addresses(), life));
  // A server finds its job as a rank does, but is none.
  if (IsServer(number)) return RankEnvironment(inherited, exports, job_->identity(), 0);
  NameRankAsOthersDo({static_cast<uint32_t>(options_.ranks)}, number, inherited);
  return RankEnvironment(inherited, exports, WithReports(job_->identity(), watch_.report_fd()), number);
}

absl::Status LocalCrew::StartOne(int number) {
  const uint64_t life = lives_.Begin(number);
  RankCommand command;
  command.rank = number;
  command.path = IsServer(number) ? "/proc/self/exe" : path_;
  command.arguments = IsServer(number) ? servers_.Command(number - options_.ranks, life) : options_.command;
  command.environment = Environment(number, life);
  if (!IsServer(number)) command.cpus = watch_.CpusOf(number);
  // A terminal is not handed on: a rank's group is not its foreground group, and reading would stop the rank.
  command.stdin_fd = number == 0 && life == 1 && isatty(0) == 0 ? 0 : null_.get();
  if (IsServer(number)) command.stdin_fd = servers_.listener(number - options_.ranks);
  const std::string line = QuotedCommand(command.arguments);
  ASSIGN_OR_RETURN(LocalRanks::Started started, ranks_.Start(std::move(command)));
  if (!IsServer(number)) watch_.OnStarted(number, started.pid);
  events_.Verbose(absl::StrCat(NameOf(number), ": pid ", started.pid, ": ", line));
  return output_.Add(number, std::move(started.out), std::move(started.err), life > 1);
}

void LocalCrew::OnEvent(PollKey key) {
  if (key.source != Source::kRank) return watch_.OnEvent(key);
  std::optional<RankEnd> end = ranks_.OnReadable(key.index);
  if (!end) return;
  if (!IsServer(end->rank)) watch_.OnEnded(end->rank);
  end->asked_to = events_.told();
  end->server = IsServer(end->rank);
  const bool over = end->server && working_ == 0;
  const std::optional<std::string> again = over ? std::nullopt : lives_.OnEnded(*end, NameOf(end->rank));
  if (!again) return Ended(*std::move(end));
  ranks_.KillGroup(key.index);
  output_.Say(*again);
}

// For good.
void LocalCrew::Ended(RankEnd end) {
  if (!end.server && --working_ == 0) EndServers();
  // Without ranks, or in a job that is to end, how a server ends tells nothing.
  if (end.server && (!end.failed() || end.asked_to || working_ == 0)) return;
  if (end.server) end.rank -= options_.ranks;
  events_.OnRankEnded(std::move(end));
}

// The job is to end: what waited for another life has none.
void LocalCrew::StartNobodyAgain() {
  for (const int number : lives_.Cancel()) {
    if (!IsServer(number) && --working_ == 0) EndServers();
  }
}

// All ranks have ended: nobody needs the servers.
void LocalCrew::EndServers() {
  if (servers_.count() == 0) return;
  lives_.Cancel();
  ranks_.SignalFrom(options_.ranks, SIGTERM);
  kill_servers_ = Now() + options_.grace;
}

std::optional<TimePoint> LocalCrew::next() const {
  std::optional<TimePoint> next = look_at_children_;
  if (const auto watch = watch_.next()) next = std::min(next.value_or(TimePoint::max()), *watch);
  if (kill_servers_) next = std::min(next.value_or(TimePoint::max()), *kill_servers_);
  if (const auto due = lives_.next()) next = std::min(next.value_or(TimePoint::max()), *due);
  return next;
}

void LocalCrew::OnChildChanged() {
  if (!look_at_children_) look_at_children_ = Now() + LocalRanks::kBetweenLooks;
}

void LocalCrew::TakeStacks() {
  watch_.TakeStacks(Now());
}

void LocalCrew::OnTime(TimePoint now) {
  watch_.OnTime(now);
  if (events_.told()) StartNobodyAgain();
  if (kill_servers_ && now >= *kill_servers_) {
    kill_servers_.reset();
    ranks_.SignalFrom(options_.ranks, SIGKILL);
  }
  for (const int number : lives_.TakeDue(now)) {
    if (const absl::Status started = StartOne(number); !started.ok()) {
      Ended({.rank = number, .when = now, .code = kExitNotStarted, .server = IsServer(number)});
    }
  }
  if (!look_at_children_ || now < *look_at_children_) return;
  look_at_children_.reset();
  for (const LocalRanks::Change& change : ranks_.LookAtChildren()) {
    events_.Verbose(absl::StrCat(NameOf(change.rank), " (pid ", change.pid,
                                 change.signal == 0 ? ") goes on" : ") was stopped by ",
                                 change.signal == 0 ? "" : SignalName(change.signal)));
  }
  events_.OnRankStoppedOrNot();
}

}  // namespace gyre::launch
