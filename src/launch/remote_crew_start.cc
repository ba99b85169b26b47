// RemoteCrew: from the first remote shell until all ranks are told to start, or none.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gyre/version.h"
#include "launch/exit_code.h"
#include "launch/host_facts.h"
#include "launch/host_table.h"
#include "launch/now.h"
#include "launch/program.h"
#include "launch/rank_environment.h"
#include "launch/remote_command.h"
#include "launch/remote_crew.h"
#include "launch/report.h"
#include "launch/transports.h"
#include "launch/watch_protocol.h"
#include "net/endpoint.h"

namespace gyre::launch {

namespace {

constexpr size_t kReachedAtOnce = 64;  // remote shells that are on their way

// Says so before what to try.
std::string NotStarted(std::string line) {
  line.insert(std::min(line.find("; try: "), line.size()), "; the job was not started");
  return line;
}

}  // namespace

void RemoteCrew::Start() {
  const absl::Status prepared = Prepare();
  if (!prepared.ok()) {
    failure_ = {NotStarted(absl::StrCat("this host: ", prepared.message())), kExitNotStarted};
    return;
  }
  events_.Verbose(absl::StrCat("job ", keys_.job_id, ": ", size_, " ranks on ", hosts_.size(), " hosts"));
  start_deadline_ = DeadlineAfter(Now(), options_.start_timeout);
  next_beat_ = Now() + kBeat;
  StartMore(Now());
}

absl::Status RemoteCrew::Prepare() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return ErrnoStatus("prctl(PR_SET_CHILD_SUBREAPER)");
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  rlimit more = files;  // each host takes up to five descriptors
  more.rlim_cur = more.rlim_max;
  setrlimit(RLIMIT_NOFILE, &more);
  char directory[PATH_MAX];
  if (getcwd(directory, sizeof directory) == nullptr) return ErrnoStatus("working directory");
  directory_ = directory;
  const char* path = std::getenv("PATH");
  const std::string shell = RemoteCommand(options_, "")[0];
  const auto program = FindProgram(shell, path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  if (!program.ok()) return Annotate(program.status(), "remote shell");
  for (Host& host : hosts_) {
    host.remote = std::make_unique<RemoteHost>(RemoteHost::Setup{.index = static_cast<uint32_t>(&host - hosts_.data()),
                                                                 .name = host.ranks.host,
                                                                 .path = *program,
                                                                 .command = RemoteCommand(options_, host.ranks.host),
                                                                 .patience = options_.host_timeout,
                                                                 .files = files},
                                               poller_, *this);
    for (const int number : NumbersOf(host)) {
      ASSIGN_OR_RETURN(ranks_[number].stream, output_.AddRemote(number, hosts_.size() > 1 ? host.ranks.host : ""));
    }
  }
  return absl::OkStatus();
}

void RemoteCrew::StartMore(TimePoint now) {
  const auto on_its_way = [](const Host& host) { return host.remote->state() == RemoteHost::State::kReaching; };
  size_t free = kReachedAtOnce - std::min<size_t>(kReachedAtOnce, std::ranges::count_if(hosts_, on_its_way));
  for (Host& host : hosts_) {
    if (free == 0 || failure_) return;
    if (host.remote->state() != RemoteHost::State::kWaiting || now < host.remote->next_attempt()) continue;
    events_.Verbose(absl::StrCat(host.remote->prefix(), RanksText(host.ranks), ": ",
                                 QuotedCommand(RemoteCommand(options_, host.ranks.host))));
    host.remote->Reach();
    --free;
  }
}

AgentJob RemoteCrew::JobFor(const Host& host) const {
  AgentJob job;
  job.version = GYRE_VERSION_STRING;
  job.job_id = keys_.job_id;
  job.secret = keys_.secret;
  job.epoch = keys_.epoch;
  job.size = static_cast<uint32_t>(size_);
  for (const Host& each : hosts_) {
    if (each.ranks.count > 0) job.ranks_on_hosts.push_back(static_cast<uint32_t>(each.ranks.count));
  }
  job.first_rank = static_cast<uint32_t>(host.ranks.first);
  job.ranks = static_cast<uint32_t>(host.ranks.count);
  job.command = options_.command;
  std::vector<std::string> own;
  for (char** entry = environ; *entry != nullptr; ++entry) own.emplace_back(*entry);
  std::vector<std::string> exports = options_.exports;
  if (!options_.interface.empty()) exports.push_back(absl::StrCat("GYRE_INTERFACE=", options_.interface));
  job.environment = RemoteEnvironment(own, exports);
  job.directory = directory_;
  job.input = isatty(0) == 0;
  job.serve_store = &host == hosts_.data();
  job.loopback = hosts_.size() == 1 ||
                 std::ranges::all_of(hosts_, [](const Host& each) { return IsLoopbackName(each.ranks.host); });
  job.host = host.ranks.host;
  constexpr std::string_view kInterface = "GYRE_INTERFACE=";
  for (const std::string& entry : job.environment) {
    if (entry.starts_with(kInterface)) job.interface = entry.substr(kInterface.size());
  }
  job.shared_volume = options_.shared_volume;
  job.grace = options_.grace;
  job.first_server = static_cast<uint32_t>(host.servers.first);
  job.servers = static_cast<uint32_t>(host.servers.count);
  job.restart_rank = static_cast<uint32_t>(options_.restart_rank);
  return job;
}

void RemoteCrew::OnHello(RemoteHost& remote, const Hello& hello) {
  if (hello.version != GYRE_VERSION_STRING) {
    return remote.Fail({"agent",
                        absl::StrCat("gyrerun is version ", hello.version, " there and " GYRE_VERSION_STRING " here"),
                        "--remote-gyrerun with the path of this version there", kExitNotStarted});
  }
  events_.Verbose(absl::StrCat(remote.prefix(), "reached; it calls itself ", hello.host));
  remote.Send(AgentMessage::kSettings, EncodeSettings(options_.watch.settings));
  remote.Send(AgentMessage::kJob, EncodeJob(JobFor(hosts_[remote.index()])));
}

absl::Status RemoteCrew::OnReady(Host& host, std::string_view payload) {
  ASSIGN_OR_RETURN(Ready ready, DecodeReady(payload));
  host.Here(ready.when);
  if (phase_ != Phase::kReaching || host.ready) return absl::DataLossError("ready at the wrong time");
  if (&host == hosts_.data()) {
    RETURN_IF_ERROR(ParseEndpoint(ready.store).status());
    store_ = std::move(ready.store);
  }
  if (std::ssize(ready.servers) != host.servers.count) return absl::DataLossError("the wrong number of servers");
  for (const std::string& server : ready.servers) RETURN_IF_ERROR(ParseEndpoint(server).status());
  host.server_addresses = std::move(ready.servers);
  host.ready = true;
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  host.skew =
      1e-6 * (static_cast<double>(ready.facts.wall_us) - std::chrono::duration<double, std::micro>(wall).count());
  host.facts = std::move(ready.facts);
  if (!std::ranges::all_of(hosts_, &Host::ready)) return absl::OkStatus();
  reaching_store_ = true;
  for (Host& each : hosts_) each.remote->Send(AgentMessage::kReach, store_);
  return absl::OkStatus();
}

absl::Status RemoteCrew::OnReached(Host& host, std::string_view payload) {
  ASSIGN_OR_RETURN(WayToStore way, DecodeWay(payload));
  if (phase_ != Phase::kReaching || !reaching_store_ || host.reached_store)
    return absl::DataLossError("reached at the wrong time");
  host.reached_store = true;
  host.facts.address = std::move(way.address);
  host.facts.interface = std::move(way.interface);
  if (way.mtu != 0) host.facts.mtu = way.mtu;
  if (!std::ranges::all_of(hosts_, &Host::reached_store)) return absl::OkStatus();
  if (options_.preflight_only) {
    EndPreflight();
  } else {
    StartRanks();
  }
  return absl::OkStatus();
}

void RemoteCrew::StartRanks() {
  phase_ = Phase::kRunning;
  start_ = Now();
  events_.OnStarted();
  events_.Verbose(absl::StrCat("all hosts are ready; store at ", store_));
  for (const std::string& line : WhatToKnowOfHosts()) events_.Verbose(line);
  JobStart start{store_, {}};
  for (const Host& host : hosts_) std::ranges::copy(host.server_addresses, std::back_inserter(start.servers));
  for (Host& host : hosts_) {
    host.remote->ReleaseLines();
    host.remote->BeginWatch(start_);
    host.remote->Send(AgentMessage::kStart, EncodeStart(start));
  }
  if (isatty(0) != 0) return;
  input_.emplace(poller_, 0, [this](std::string_view piece) {
    if (!hosts_[0].open()) return;
    hosts_[0].remote->Send(piece.empty() ? AgentMessage::kInputEnd : AgentMessage::kInput, piece);
  });
  input_->Start();
}

void RemoteCrew::OnTimeBeforeStart(TimePoint now) {
  const bool late = now >= start_deadline_;
  if (!first_gone_ && !late) return StartMore(now);
  // Hosts are often in the same trouble: all of them are named.
  const auto under_way = [this](const Host& host) {
    return host.remote->state() == RemoteHost::State::kReaching || (host.open() && Missing(host));
  };
  if (late || now >= fail_at_ || std::ranges::none_of(hosts_, under_way)) FailStart(late);
}

// Whether the start waits for it.
bool RemoteCrew::Missing(const Host& host) const {
  return !host.ready || (reaching_store_ && !host.reached_store);
}

HostFailure RemoteCrew::TroubleOf(const Host& host) const {
  HostFailure trouble = host.remote->Trouble();
  if (!host.ready || !host.open()) return trouble;
  trouble.stage = "connection back";
  trouble.cause = absl::StrCat("it has not said yet whether it reaches the store at ", store_);
  return trouble;
}

// Of those that keep the job from starting, the first one by time comes first.
std::vector<HostFailure> RemoteCrew::Troubles(bool late) const {
  std::vector<HostFailure> troubles;
  for (const Host& host : hosts_) {
    if (late ? !Missing(host) : !host.remote->in_trouble()) continue;
    const bool first = first_gone_ == host.remote->index();
    troubles.insert(first ? troubles.begin() : troubles.end(), TroubleOf(host));
  }
  return troubles;
}

void RemoteCrew::FailStart(bool late) {
  const std::vector<HostFailure> troubles = Troubles(late);
  std::string summary;
  if (late) {
    const double seconds = std::chrono::duration<double>(options_.start_timeout).count();
    summary = absl::StrCat(troubles.size(), " of ", hosts_.size(), " hosts were not ready within --start-timeout ",
                           seconds, " s");
  }
  failure_ = {NotStartedLine(troubles, summary), troubles.front().exit_code};
  if ((late && hosts_.size() > 1) || options_.preflight_only) failure_->table = Table();
  for (const Host& host : hosts_) CloseStreams(host);
}

std::vector<std::string> RemoteCrew::Table() const {
  std::vector<HostRow> rows;
  for (const Host& host : hosts_) {
    HostRow row{host.ranks.host, RanksText(host.ranks), !Missing(host), absl::StrCat("ready: ", FactsText(host.facts))};
    if (!row.ready) {
      const HostFailure trouble = TroubleOf(host);
      row.state = absl::StrCat(trouble.stage, ": ", trouble.cause, " (", trouble.attempts,
                               trouble.attempts == 1 ? " attempt)" : " attempts)");
    }
    rows.push_back(std::move(row));
  }
  return HostTable(std::move(rows));
}

std::vector<std::string> RemoteCrew::WhatToKnowOfHosts() const {
  std::vector<CheckedHost> checked;
  for (const Host& host : hosts_) checked.push_back({host.ranks.host, host.ranks.count, host.facts, host.skew});
  constexpr std::string_view kBackend = "GYRE_BACKEND=";
  std::string backend;
  for (const std::string& entry : JobFor(hosts_[0]).environment) {
    if (entry.starts_with(kBackend)) backend = entry.substr(kBackend.size());
  }
  std::vector<std::string> lines = TransportLines(checked, backend);
  for (std::string& doubt : Doubts(checked)) lines.push_back(std::move(doubt));
  return lines;
}

void RemoteCrew::EndPreflight() {
  failure_ = {absl::StrCat("all ", hosts_.size(), " hosts are ready for ", size_,
                           " ranks; --preflight-only: nothing was started"),
              0, Table()};
  for (std::string& line : WhatToKnowOfHosts()) failure_->table.push_back(std::move(line));
  for (const Host& host : hosts_) CloseStreams(host);
}

}  // namespace gyre::launch
