#include "launch/local_crew.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launch/exit_code.h"
#include "launch/rank_environment.h"
#include "launch/report.h"
#include "launch/signals.h"

namespace gyre::launch {

namespace {

constexpr Duration kBetweenLooks = std::chrono::milliseconds(100);  // at the children; a look takes all of /proc
constexpr Duration kFirstPause = std::chrono::milliseconds(20);     // before a process is started again; doubles
constexpr uint64_t kMostDoublings = 8;

}  // namespace

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
  ASSIGN_OR_RETURN(job_, Job::Serve(keys_, options_.ranks, "127.0.0.1"));
  RETURN_IF_ERROR(watch_.Prepare(options_.watch.settings, 0, options_.ranks));
  events_.OnStarted();
  events_.Verbose(absl::StrCat("job ", job_->identity().job_id, ": ", options_.ranks, " of ", path_, ", store at ",
                               job_->identity().store));
  if (options_.servers > 0) RETURN_IF_ERROR(servers_.Open(options_.servers));
  const int processes = options_.ranks + options_.servers;
  lives_.resize(static_cast<size_t>(processes));
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
  if (servers_.count() > 0) {
    constexpr std::string_view kStrategy = "GYRE_STRATEGY=";
    const char* const here = std::getenv("GYRE_STRATEGY");
    std::string given = here != nullptr ? here : "";
    for (const std::string& entry : exports) {
      if (entry.starts_with(kStrategy)) given = entry.substr(kStrategy.size());
    }
    exports.push_back(absl::StrCat("GYRE_STRATEGY=", servers_.Strategy(given, life)));
  }
  // A server finds its job as a rank does, but is none.
  if (IsServer(number)) return RankEnvironment(inherited, exports, job_->identity(), 0);
  NameRankAsOthersDo({static_cast<uint32_t>(options_.ranks)}, number, inherited);
  return RankEnvironment(inherited, exports, WithReports(job_->identity(), watch_.report_fd()), number);
}

absl::Status LocalCrew::StartOne(int number) {
  const uint64_t life = ++lives_[static_cast<size_t>(number)];
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
  numbers_.push_back(number);
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
  if (StartsAgain(*end)) {
    ranks_.KillGroup(key.index);
    return;
  }
  Ended(*std::move(end));
}

// For good.
void LocalCrew::Ended(RankEnd end) {
  if (!end.server && --working_ == 0) EndServers();
  // Without ranks, how a server ends tells nothing of the job.
  if (end.server && (!end.failed() || working_ == 0)) return;
  if (end.server) end.rank -= options_.ranks;
  events_.OnRankEnded(std::move(end));
}

// A rank that has halted in order is not started again here, nor one that never came to run.
bool LocalCrew::StartsAgain(const RankEnd& end) {
  const uint64_t life = lives_[static_cast<size_t>(end.rank)];
  const bool over = end.server && working_ == 0;
  if (!end.failed() || end.asked_to || over || end.exec_error != 0 || (end.signal == 0 && end.code == kExitHalted)) {
    return false;
  }
  if (life > static_cast<uint64_t>(options_.restart_rank)) return false;
  due_[end.rank] = end.when + kFirstPause * (1 << std::min(life - 1, kMostDoublings));
  output_.Say(absl::StrCat(NameOf(end.rank), " (pid ", end.pid, ") ", HowItEnded(end), "; it is started again, ", life,
                           " of ", options_.restart_rank));
  return true;
}

// The job is to end: what waited for another life has none.
void LocalCrew::StartNobodyAgain() {
  for (const auto& [number, _] : std::exchange(due_, {})) {
    if (!IsServer(number) && --working_ == 0) EndServers();
  }
}

// All ranks have ended: nobody needs the servers.
void LocalCrew::EndServers() {
  std::erase_if(due_, [this](const auto& entry) { return IsServer(entry.first); });
  if (options_.servers == 0) return;
  SignalServers(SIGTERM);
  kill_servers_ = std::chrono::steady_clock::now() + options_.grace;
}

void LocalCrew::SignalServers(int signal) {
  for (size_t start = 0; start < numbers_.size(); ++start) {
    if (IsServer(numbers_[start])) ranks_.SignalOne(static_cast<uint32_t>(start), signal);
  }
}

std::optional<TimePoint> LocalCrew::next() const {
  std::optional<TimePoint> next = look_at_children_;
  if (const auto watch = watch_.next()) next = std::min(next.value_or(TimePoint::max()), *watch);
  if (kill_servers_) next = std::min(next.value_or(TimePoint::max()), *kill_servers_);
  for (const auto& [_, when] : due_) next = std::min(next.value_or(TimePoint::max()), when);
  return next;
}

void LocalCrew::OnChildChanged() {
  if (!look_at_children_) look_at_children_ = std::chrono::steady_clock::now() + kBetweenLooks;
}

void LocalCrew::TakeStacks() {
  watch_.TakeStacks(std::chrono::steady_clock::now());
}

void LocalCrew::OnTime(TimePoint now) {
  watch_.OnTime(now);
  if (events_.told()) StartNobodyAgain();
  if (kill_servers_ && now >= *kill_servers_) {
    kill_servers_.reset();
    SignalServers(SIGKILL);
  }
  for (auto due = due_.begin(); due != due_.end();) {
    if (now < due->second) {
      ++due;
      continue;
    }
    const int number = due->first;
    due = due_.erase(due);
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
