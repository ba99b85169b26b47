#include "launch/local_crew.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launch/exit_code.h"
#include "launch/rank_environment.h"
#include "launch/report.h"
#include "launch/signals.h"

namespace gyre::launch {

namespace {

constexpr Duration kBetweenLooks = std::chrono::milliseconds(100);  // at the children; a look takes all of /proc

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
  for (int rank = 0; rank < options_.ranks; ++rank) {
    RETURN_IF_ERROR(Annotate(StartOne(rank), absl::StrCat("starting rank ", rank)));
  }
  ranks_.AllStarted();
  return absl::OkStatus();
}

absl::Status LocalCrew::StartOne(int rank) {
  RankCommand command;
  command.rank = rank;
  command.path = path_;
  command.arguments = options_.command;
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  std::vector<std::string> exports = options_.exports;
  if (!options_.interface.empty()) exports.push_back(absl::StrCat("GYRE_INTERFACE=", options_.interface));
  command.environment = RankEnvironment(inherited, exports, WithReports(job_->identity(), watch_.report_fd()), rank);
  command.cpus = watch_.CpusOf(rank);
  // A terminal is not handed on: a rank's group is not its foreground group, and reading would stop the rank.
  command.stdin_fd = rank == 0 && isatty(0) == 0 ? 0 : null_.get();
  ASSIGN_OR_RETURN(LocalRanks::Started started, ranks_.Start(std::move(command)));
  watch_.OnStarted(rank, started.pid);
  events_.Verbose(absl::StrCat("rank ", rank, ": pid ", started.pid, ": ", QuotedCommand(options_.command)));
  return output_.Add(rank, std::move(started.out), std::move(started.err));
}

void LocalCrew::OnEvent(PollKey key) {
  if (key.source != Source::kRank) return watch_.OnEvent(key);
  std::optional<RankEnd> end = ranks_.OnReadable(key.index);
  if (!end) return;
  watch_.OnEnded(end->rank);
  end->asked_to = events_.told();
  events_.OnRankEnded(*std::move(end));
}

void LocalCrew::OnChildChanged() {
  if (!look_at_children_) look_at_children_ = std::chrono::steady_clock::now() + kBetweenLooks;
}

std::optional<TimePoint> LocalCrew::next() const {
  const std::optional<TimePoint> watch = watch_.next();
  if (!look_at_children_ || !watch) return look_at_children_ ? look_at_children_ : watch;
  return std::min(*look_at_children_, *watch);
}

void LocalCrew::TakeStacks() {
  watch_.TakeStacks(std::chrono::steady_clock::now());
}

void LocalCrew::OnTime(TimePoint now) {
  watch_.OnTime(now);
  if (!look_at_children_ || now < *look_at_children_) return;
  look_at_children_.reset();
  for (const LocalRanks::Change& change : ranks_.LookAtChildren()) {
    events_.Verbose(absl::StrCat("rank ", change.rank, " (pid ", change.pid,
                                 change.signal == 0 ? ") goes on" : ") was stopped by ",
                                 change.signal == 0 ? "" : SignalName(change.signal)));
  }
  events_.OnRankStoppedOrNot();
}

}  // namespace gyre::launch
