#include "launch/remote_crew.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "launch/descendants.h"
#include "launch/now.h"
#include "launch/signals.h"

namespace gyre::launch {

namespace {

constexpr uint32_t kCreditStep = kOutputWindow / 8;
constexpr size_t kDropLines = size_t{1} << 20;  // of remote standard error, while so much waits for our reader
constexpr Duration kOthersShow = std::chrono::milliseconds(500);
constexpr Duration kAgentsEnd = std::chrono::seconds(4);
constexpr Duration kShellsDie = std::chrono::seconds(5);

std::string Why(const RemoteHost& host) {
  return absl::StrCat(host.failure().stage, ": ", host.failure().cause);
}

}  // namespace

RemoteCrew::RemoteCrew(const Options& options, const std::vector<HostRanks>& rank_hosts, const JobKeys& keys,
                       Poller& poller, OutputMux& output, CrewEvents& events)
    : options_(options), poller_(poller), output_(output), events_(events), keys_(keys) {
  for (const HostRanks& ranks : rank_hosts) size_ += ranks.count;
  const int servers = options.ServersFor(size_);
  const std::vector<HostRanks> hosts = WithServerHosts(rank_hosts, options.server_hosts);
  const std::vector<HostServers> placed = PlaceServers(hosts, servers, options.colocate_servers, options.server_hosts);
  for (size_t i = 0; i < hosts.size(); ++i) {
    hosts_.push_back({.ranks = hosts[i], .servers = placed[i], .remote = nullptr});
  }
  alive_ = size_;
  ranks_.resize(static_cast<size_t>(size_) + static_cast<size_t>(servers));
}

std::string RemoteCrew::NameOf(int number) const {
  return number < size_ ? absl::StrCat("rank ", number) : absl::StrCat("server ", number - size_);
}

std::vector<int> RemoteCrew::NumbersOf(const Host& host) const {
  std::vector<int> numbers;
  for (int i = 0; i < host.ranks.count; ++i) numbers.push_back(host.ranks.first + i);
  for (int i = 0; i < host.servers.count; ++i) numbers.push_back(size_ + host.servers.first + i);
  return numbers;
}

void RemoteCrew::OnEvent(PollKey key) {
  if (key.source == Source::kInput && input_) input_->OnReadable();
  if (key.source >= Source::kHostOutput && key.source <= Source::kHostProcess && key.index < hosts_.size()) {
    hosts_[key.index].remote->OnEvent(key.source);
  }
}

std::optional<TimePoint> RemoteCrew::next() const {
  if (phase_ == Phase::kCancelled || failure_) return std::nullopt;
  TimePoint next = next_beat_;
  if (phase_ != Phase::kReaching) return next;
  next = std::min(next, start_deadline_);
  if (first_gone_) return std::min(next, fail_at_);
  for (const Host& host : hosts_) {
    if (host.remote->state() == RemoteHost::State::kWaiting) next = std::min(next, host.remote->next_attempt());
  }
  return std::max(next, Now() + std::chrono::milliseconds(1));  // all may be on their way that may at once
}

void RemoteCrew::OnTime(TimePoint now) {
  if (failure_ || phase_ == Phase::kCancelled) return;
  if (phase_ == Phase::kReaching) OnTimeBeforeStart(now);
  const bool beat = now >= next_beat_;
  if (beat) next_beat_ = now + kBeat;
  for (Host& host : hosts_) {
    if (!host.open()) continue;
    if (beat) host.remote->Send(AgentMessage::kBeat);
    if (host.credit >= kCreditStep && !output_.full()) {
      host.remote->Send(AgentMessage::kCredit, EncodeNumber(host.credit));
      host.credit = 0;
    }
    host.remote->Flush();
    if (phase_ != Phase::kReaching) host.remote->CheckLiveness(now);
  }
}

// --- Losing hosts ---

void RemoteCrew::OnLine(RemoteHost& remote, std::string_view line) {
  if (output_.pending() < kDropLines) output_.Say(absl::StrCat(remote.prefix(), ToAbsl(line)));
}

void RemoteCrew::OnNote(RemoteHost& remote, std::string_view note) {
  events_.Verbose(absl::StrCat(remote.prefix(), ToAbsl(note)));
}

void RemoteCrew::OnGone(RemoteHost& remote) {
  Host& host = hosts_[remote.index()];
  if (phase_ == Phase::kReaching) {
    host.ready = host.reached_store = false;  // the start must not count it, whatever it said before
    if (!first_gone_) fail_at_ = Now() + kOthersShow;
    if (!first_gone_) first_gone_ = remote.index();
    return;
  }
  CloseStreams(host);
  if (phase_ == Phase::kRunning) LoseRanks(host);
  if (phase_ == Phase::kFinishing && !host.done && !closing_) {
    output_.Say(absl::StrCat(remote.prefix(), Why(remote), "; some of its output may be missing"));
  }
}

void RemoteCrew::LoseRanks(const Host& host) {
  std::vector<int> lost;
  std::vector<std::string> names;
  for (const int number : NumbersOf(host)) {
    if (!ranks_[number].alive) continue;
    lost.push_back(number);
    names.push_back(number >= size_ || lost.size() == 1 ? NameOf(number) : absl::StrCat(number));
  }
  if (&host == hosts_.data() && input_) input_->Stop();
  output_.Say(absl::StrCat(host.remote->prefix(), "lost: ", Why(*host.remote), "; ",
                           lost.empty() ? "its ranks had ended" : "with ", absl::StrJoin(names, ", ")));
  for (const int number : lost) {
    ranks_[number].alive = false;
    if (number < size_) --alive_;
  }
  for (const int number : lost) {
    RankEnd end{.rank = number, .pid = ranks_[number].pid, .when = std::max(host.clock.last(), start_)};
    end.asked_to = events_.told();
    end.host = host.ranks.host;
    end.lost = true;
    if (number >= size_) {
      EndOfServer(std::move(end));
    } else {
      events_.OnRankEnded(std::move(end));
    }
  }
}

// Without ranks, or in a job that is to end, how a server ends tells nothing.
void RemoteCrew::EndOfServer(RankEnd end) {
  if (alive_ == 0 || !end.failed() || (end.asked_to && !end.lost)) return;
  end.rank -= size_;
  end.server = true;
  events_.OnRankEnded(std::move(end));
}

void RemoteCrew::CloseStreams(const Host& host) {
  for (const int number : NumbersOf(host)) {
    const uint32_t stream = ranks_[number].stream;
    output_.Finish(stream);
    output_.Finish(stream + 1);
  }
}

// --- The ranks as a whole ---

void RemoteCrew::Signal(int signal) {
  if (phase_ == Phase::kReaching) {
    if (signal != SIGUSR1 && signal != SIGUSR2) phase_ = Phase::kCancelled;
    for (const Host& host : hosts_) {
      if (phase_ == Phase::kCancelled) CloseStreams(host);
    }
    return;
  }
  for (Host& host : hosts_) {
    if (host.open()) host.remote->Send(AgentMessage::kSignal, EncodeNumber(static_cast<uint32_t>(signal)));
  }
}

void RemoteCrew::TakeStacks() {
  for (Host& host : hosts_) {
    if (host.open() && phase_ == Phase::kRunning) host.remote->Send(AgentMessage::kStacks);
  }
}

bool RemoteCrew::ended() const {
  return failure_ || phase_ == Phase::kCancelled || (phase_ != Phase::kReaching && alive_ == 0);
}

bool RemoteCrew::any_goes_on() const {
  return std::any_of(ranks_.begin(), ranks_.begin() + size_,
                     [](const Rank& rank) { return rank.alive && !rank.stopped; });
}

std::vector<std::string> RemoteCrew::Stopped() const {
  std::vector<std::string> stopped;
  for (size_t i = 0; i < static_cast<size_t>(size_); ++i) {
    if (ranks_[i].alive && ranks_[i].stopped) stopped.push_back(absl::StrCat(i, " (pid ", ranks_[i].pid, ")"));
  }
  return stopped;
}

bool RemoteCrew::EndWhatIsLeft() {
  if (phase_ != Phase::kRunning) return true;
  phase_ = Phase::kFinishing;
  for (Host& host : hosts_) {
    if (host.open()) host.remote->Send(AgentMessage::kFinish);
  }
  return true;
}

bool RemoteCrew::output_under_way() const {
  if (phase_ != Phase::kFinishing) return false;
  return std::ranges::any_of(hosts_, [](const Host& host) { return host.open() && !host.done; });
}

void RemoteCrew::Close() {
  closing_ = true;
  if (phase_ == Phase::kRunning || phase_ == Phase::kReaching) phase_ = Phase::kCancelled;
  for (Host& host : hosts_) {
    if (host.remote == nullptr) continue;
    if (!host.open()) host.remote->Kill();
    host.remote->CloseInput();
  }
  const auto lives = [](const Host& host) { return host.remote != nullptr && host.remote->process_lives(); };
  const TimePoint deadline = Now() + kAgentsEnd;
  while (std::ranges::any_of(hosts_, lives) && Now() < deadline) {
    for (const PollKey& key : poller_.Wait(20)) {
      if (key.source != Source::kInput) OnEvent(key);
    }
    output_.Flush();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // events of others stay unread
  }
  for (Host& host : hosts_) {
    if (host.remote != nullptr) host.remote->Kill();
  }
  KillDescendants(Now() + kShellsDie);
}

}  // namespace gyre::launch
