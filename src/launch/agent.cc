#include "launch/agent.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gyre/version.h"
#include "launch/exit_code.h"
#include "launch/now.h"
#include "launch/output_sink.h"
#include "launch/signals.h"

namespace gyre::launch {

namespace {

constexpr Duration kLauncherPatience = std::chrono::seconds(5);  // with a silent launcher
constexpr Duration kLastWords = std::chrono::seconds(2);         // for the launcher to take what it was sent last

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

Agent::Agent(int guard_pidfd)
    : guard_pidfd_(guard_pidfd),
      launcher_(Liveness(kLauncherPatience, Now())),
      channel_(1, kMaxToAgent),
      ranks_(poller_),
      output_(poller_, channel_),
      watch_(poller_, *this) {}

absl::Status Agent::Prepare() {
  RETURN_IF_ERROR(poller_.Open());
  ASSIGN_OR_RETURN(signals_, OpenSignals());
  RETURN_IF_ERROR(poller_.AddReadable(signals_.get(), {Source::kSignals}));
  RETURN_IF_ERROR(poller_.AddReadable(guard_pidfd_, {Source::kGuard}));
  RETURN_IF_ERROR(poller_.AddReadable(0, {Source::kHostOutput}));
  RETURN_IF_ERROR(ranks_.Prepare());
  null_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return null_ ? absl::OkStatus() : ErrnoStatus("/dev/null");
}

TimePoint Agent::Next() const {
  TimePoint next = next_beat_;
  if (look_at_children_) next = std::min(next, *look_at_children_);
  if (ending_ && ending_->next()) next = std::min(next, *ending_->next());
  if (watch_.next()) next = std::min(next, *watch_.next());
  if (lives_ && lives_->next()) next = std::min(next, *lives_->next());
  return next;
}

void Agent::Step() {
  const std::vector<PollKey> ready = poller_.Wait(PollMilliseconds(Now(), Next()));
  for (const PollKey& key : ready) {
    if (key.source == Source::kRank) OnRankEnded(key.index);
  }
  for (const PollKey& key : ready) {
    if (key.source == Source::kStream) output_.OnReadable(key.index);
    if (key.source == Source::kHostOutput) OnInput();
    if (key.source == Source::kSignals) OnSignals();
    if (key.source == Source::kReports || key.source == Source::kTool) watch_.OnEvent(key);
    if (key.source != Source::kGuard || !guarded_) continue;
    guarded_ = false;
    poller_.Remove(guard_pidfd_);
    Fail({kExitSignalBase + SIGKILL, "agent", "it was killed"});
  }
  OnTime(Now());
}

void Agent::OnTime(TimePoint now) {
  if (look_at_children_ && now >= *look_at_children_) LookAtChildren();
  watch_.OnTime(now);
  if (lives_) StartAgain(now);
  if (ending_) SignalAll(ending_->OnTime(now));
  if (now >= next_beat_) {
    next_beat_ = now + kBeat;
    SendTime();
  }
  if (const size_t taken = input_.Flush(poller_); taken > 0) {
    channel_.Send(AgentMessage::kInputTaken, EncodeNumber(static_cast<uint32_t>(taken)));
  }
  channel_.Flush(poller_, {Source::kHostInput});
  if (listening_ && launcher_.Expired(now)) LoseLauncher("it gave no sign of life for 5 s");
  if (channel_.error() != 0) LoseLauncher("the connection to it is broken");
  over_ = over_ || (ending_ && (ranks_.ended() || ending_->given_up()));
}

void Agent::SendTime() {
  channel_.Send(AgentMessage::kBeat, EncodeTime(Now()));
}

void Agent::OnInput() {
  std::array<char, kReadBytes> buffer;
  const ssize_t count = read(0, buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return LoseLauncher("the connection to it has ended");
  launcher_.OnHeard(Now());
  const absl::Status status =
      channel_.Feed({buffer.data(), static_cast<size_t>(count)}, [this](const Frame& frame) { return OnFrame(frame); });
  if (!status.ok()) LoseLauncher(absl::StrCat("what it says is not understood: ", status.message()));
}

absl::Status Agent::OnFrame(const Frame& frame) {
  const auto type = static_cast<AgentMessage>(frame.header.type);
  switch (type) {
    case AgentMessage::kBeat: return absl::OkStatus();
    case AgentMessage::kJob: return OnJob(frame.payload);
    case AgentMessage::kReach: return OnReach(frame.payload);
    case AgentMessage::kStart: return OnStart(frame.payload);
    case AgentMessage::kSignal: return OnSignalMessage(frame.payload);
    case AgentMessage::kInput: input_.Put(frame.payload); return absl::OkStatus();
    case AgentMessage::kInputEnd: input_.End(); return absl::OkStatus();
    case AgentMessage::kFinish: finish_ = true; return absl::OkStatus();
    case AgentMessage::kSettings: return OnSettings(frame.payload);
    case AgentMessage::kStacks: watch_.TakeStacks(Now()); return absl::OkStatus();
    case AgentMessage::kCredit: break;
    default: return absl::DataLossError(absl::StrCat("a message of type ", frame.header.type));
  }
  ASSIGN_OR_RETURN(const uint32_t bytes, DecodeNumber(frame.payload));
  output_.OnCredit(bytes);
  return absl::OkStatus();
}

// --- What happens ---

void Agent::OnRankEnded(uint32_t index) {
  std::optional<RankEnd> end = ranks_.OnReadable(index);
  if (!end) return;
  const bool server = IsServer(end->rank);
  if (!server) watch_.OnEnded(end->rank);
  end->asked_to = told_;
  // Without ranks, how a server ends tells nothing of the job.
  if (server && finish_) return;
  if (const std::optional<std::string> again = lives_->OnEnded(*end, NameOf(end->rank))) {
    ranks_.KillGroup(index);
    return OnNote(*again);
  }
  channel_.Send(AgentMessage::kRankEnded, EncodeRankEnd(*end));
}

void Agent::OnSignals() {
  for (const int signal : ReadSignals(signals_.get())) {
    if (signal == SIGCHLD) {
      if (!look_at_children_) look_at_children_ = Now() + LocalRanks::kBetweenLooks;
    } else if (signal == SIGUSR1 || signal == SIGUSR2) {
      SignalAll(signal);
    } else {
      Fail({kExitSignalBase + signal, "agent", absl::StrCat("it was ended by ", SignalName(signal))});
    }
  }
}

void Agent::LookAtChildren() {
  look_at_children_.reset();
  for (const LocalRanks::Change& change : ranks_.LookAtChildren()) {
    channel_.Send(AgentMessage::kRankState,
                  EncodePair(static_cast<uint32_t>(change.rank), static_cast<uint32_t>(change.signal)));
  }
}

absl::Status Agent::OnSignalMessage(std::string_view payload) {
  ASSIGN_OR_RETURN(const uint32_t signal, DecodeNumber(payload));
  if (signal < 1 || signal >= NSIG) return absl::DataLossError(absl::StrCat("signal ", signal));
  SignalAll(static_cast<int>(signal));
  return absl::OkStatus();
}

void Agent::SignalAll(int signal) {
  if (signal == 0) return;
  told_ = told_ || (signal != SIGUSR1 && signal != SIGUSR2);
  // Servers end with the job's ranks, on whatever host, unless this host ends by itself.
  const bool all = signal == SIGKILL || ending_ || !job_message_;
  ranks_.Signal(signal, all ? LocalRanks::kAll : static_cast<int>(job_message_->size));
}

// --- The end ---

void Agent::Fail(const Failure& failure) {
  if (!ending_) {
    SendTime();  // of the failure
    channel_.Send(AgentMessage::kFailed, EncodeFailure(failure));
  }
  EndRanks();
}

void Agent::LoseLauncher(std::string_view why) {
  if (listening_) poller_.Remove(0);
  listening_ = false;
  if (ending_ || over_) return;
  if (started_ && !ranks_.ended()) Say(absl::StrCat("the launcher was lost: ", ToAbsl(why)));
  // It may only have been held up, and hear of it later.
  Fail({kExitSignalBase + SIGKILL, "agent", absl::StrCat("it lost gyrerun: ", ToAbsl(why))});
}

void Agent::EndRanks() {
  if (ending_) return;
  const Duration grace = job_message_ ? Duration(job_message_->grace) : Duration::zero();
  ending_.emplace(Ending::Limits{.settle = {}, .grace = grace, .timeout = {}}, Now());
  SignalAll(ending_->OnGuardLost(Now()));
}

void Agent::EndServers() {
  if (!duty_ || duty_->servers == nullptr || ending_) return;
  lives_->Cancel();
  ranks_.SignalFrom(static_cast<int>(job_message_->size), SIGTERM);
  const TimePoint patience = DeadlineAfter(Now(), job_message_->grace);
  while (!ranks_.ended() && !ending_ && Now() < patience) Step();
}

void Agent::Finish() {
  if (!ranks_.KillWhatIsLeft()) Say("some processes hang in the kernel and could not be ended");
  // The writers are dead, so what is in the pipes is all there is, unless somebody out of our reach holds them.
  const TimePoint killed = Now();
  TimePoint moving = killed;
  while (output_.open() && !ending_ && Now() - moving < kPipeSilence) {
    if (output_.stalled()) moving = Now();
    Step();
  }
  output_.Close();
  if (!ending_) channel_.Send(AgentMessage::kDone);
}

void Agent::Leave() {
  const TimePoint started = Now();
  while (channel_.pending() > 0 && channel_.error() == 0 && (listening_ || Now() - started < kLastWords)) Step();
}

int Agent::Run() {
  if (const absl::Status prepared = Prepare(); !prepared.ok()) {
    Say(absl::StrCat(prepared.message(), "; --agent is for gyrerun itself"));
    return kExitUsage;
  }
  channel_.SendRaw(kAgentMagic);
  channel_.Send(AgentMessage::kHello, EncodeHello({GYRE_VERSION_STRING, HostName()}));
  next_beat_ = Now() + kBeat;
  channel_.Flush(poller_, {Source::kHostInput});
  while (!over_ && !finish_) Step();
  EndServers();
  Finish();
  Leave();
  return ending_ ? 1 : 0;
}

}  // namespace gyre::launch
