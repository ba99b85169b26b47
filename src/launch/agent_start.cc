// Agent: from the job to its ranks, and those of them that are started again.
#include <unistd.h>

#include <csignal>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launch/agent.h"
#include "launch/exit_code.h"
#include "launch/now.h"
#include "launch/rank_environment.h"
#include "launch/server_ranks.h"

namespace gyre::launch {

namespace {

constexpr Duration kConnectBack = std::chrono::seconds(3);

}  // namespace

absl::Status Agent::OnSettings(std::string_view payload) {
  if (job_message_) return absl::DataLossError("settings at the wrong time");
  ASSIGN_OR_RETURN(settings_, DecodeSettings(payload));
  return absl::OkStatus();
}

absl::Status Agent::OnJob(std::string_view payload) {
  if (job_message_) return absl::DataLossError("a second job");
  ASSIGN_OR_RETURN(job_message_, DecodeJob(payload));
  std::variant<AgentDuty, Failure> duty = TakeUpJob(*job_message_);
  if (const Failure* failure = std::get_if<Failure>(&duty)) {
    Fail(*failure);
    return absl::OkStatus();
  }
  duty_ = std::get<AgentDuty>(std::move(duty));
  // It may take seconds. Before it is ready nobody counts this host's silence; once ranks start, somebody does.
  if (settings_.sample.count() > 0) watch_.FindGpus();
  lives_.emplace(static_cast<int>(job_message_->restart_rank));
  Ready ready{Now(), job_message_->serve_store ? duty_->job.identity().store : "", duty_->facts};
  if (duty_->servers != nullptr) ready.servers = duty_->servers->addresses();
  channel_.Send(AgentMessage::kReady, EncodeReady(ready));
  return absl::OkStatus();
}

// Blocks for a moment in which nothing runs here yet, shorter than the launcher's and this one's patience.
absl::Status Agent::OnReach(std::string_view store) {
  if (!duty_ || started_ || ending_) return absl::DataLossError("a store at the wrong time");
  const absl::StatusOr<WayToStore> way = ReachStore(std::string(store), Now() + kConnectBack);
  if (way.ok()) {
    channel_.Send(AgentMessage::kReached, EncodeWay(*way));
  } else {
    Fail({kExitNotStarted, "connection back", std::string(way.status().message())});
  }
  return absl::OkStatus();
}

absl::Status Agent::OnStart(std::string_view payload) {
  if (!duty_ || started_ || ending_) return absl::DataLossError("a start at the wrong time");
  ASSIGN_OR_RETURN(JobStart start, DecodeStart(payload));
  started_ = true;
  duty_->job.set_store(std::move(start.store));
  servers_ = std::move(start.servers);
  const absl::Status started = StartRanks();
  if (!started.ok()) {
    Fail(
        {kExitNotStarted, "starting its ranks", absl::StrCat(started.message(), "; try: fewer slots, or again later")});
  }
  return absl::OkStatus();
}

absl::Status Agent::StartRanks() {
  const auto first = static_cast<int>(job_message_->first_rank);
  if (job_message_->input && first == 0) {
    ASSIGN_OR_RETURN(input_end_, input_.Open());
  }
  RETURN_IF_ERROR(watch_.Prepare(settings_, first, static_cast<int>(job_message_->ranks)));
  const int first_server = static_cast<int>(job_message_->size + job_message_->first_server);
  for (int number = first_server; number < first_server + static_cast<int>(job_message_->servers); ++number) {
    RETURN_IF_ERROR(Annotate(StartOne(number), NameOf(number)));
  }
  for (int rank = first; rank < first + static_cast<int>(job_message_->ranks); ++rank) {
    RETURN_IF_ERROR(Annotate(StartOne(rank), NameOf(rank)));
  }
  if (job_message_->restart_rank == 0) ranks_.AllStarted();
  input_end_.Reset();
  return absl::OkStatus();
}

std::string Agent::NameOf(int number) const {
  return IsServer(number) ? absl::StrCat("server ", number - static_cast<int>(job_message_->size))
                          : absl::StrCat("rank ", number);
}

RankCommand Agent::CommandOf(int number, uint64_t life) const {
  RankCommand command;
  command.rank = number;
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  std::vector<std::string> own = duty_->environment;
  if (!servers_.empty()) own.push_back(StrategyVariable(own, servers_, life));
  const JobIdentity& job = duty_->job.identity();
  if (IsServer(number)) {
    // It finds its job as a rank does, but is none.
    const int server = number - static_cast<int>(job_message_->size);
    command.path = "/proc/self/exe";
    command.arguments = duty_->servers->Command(server, life);
    command.environment = RankEnvironment(inherited, own, job, 0);
    command.stdin_fd = duty_->servers->listener(server);
    return command;
  }
  NameRankAsOthersDo(job_message_->ranks_on_hosts, number, inherited);
  command.path = duty_->program;
  command.arguments = job_message_->command;
  command.environment = RankEnvironment(inherited, own, WithReports(job, watch_.report_fd()), number);
  command.cpus = watch_.CpusOf(number);
  command.stdin_fd = number == 0 && life == 1 && input_end_ ? input_end_.get() : null_.get();
  return command;
}

absl::Status Agent::StartOne(int number) {
  ASSIGN_OR_RETURN(LocalRanks::Started started, ranks_.Start(CommandOf(number, lives_->Begin(number))));
  if (!IsServer(number)) watch_.OnStarted(number, started.pid);
  channel_.Send(AgentMessage::kStarted, EncodePair(static_cast<uint32_t>(number), static_cast<uint32_t>(started.pid)));
  output_.Add(number, std::move(started.out), std::move(started.err));
  return absl::OkStatus();
}

void Agent::StartAgain(TimePoint now) {
  if (told_ || finish_) StartNobodyAgain();
  for (const int number : lives_->TakeDue(now)) {
    if (const absl::Status started = StartOne(number); !started.ok()) {
      channel_.Send(AgentMessage::kRankEnded, EncodeRankEnd({.rank = number, .when = now, .code = kExitNotStarted}));
    }
  }
}

// The job is to end: what waited for another life has none, and is no cause of the end.
void Agent::StartNobodyAgain() {
  for (const int number : lives_->Cancel()) {
    if (IsServer(number)) continue;
    channel_.Send(AgentMessage::kRankEnded,
                  EncodeRankEnd({.rank = number, .when = Now(), .signal = SIGKILL, .asked_to = true}));
  }
}

}  // namespace gyre::launch
