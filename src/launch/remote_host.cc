#include "launch/remote_host.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launch/exit_code.h"
#include "launch/now.h"
#include "launch/report.h"
#include "launch/signals.h"

namespace gyre::launch {

namespace {

constexpr int kLastHostReads = 256;  // 16 MiB: of an agent that went on writing after its remote shell had ended
constexpr size_t kHeldLines = 32;
constexpr int kRemoteShellFailed = 255;  // ssh's own errors
constexpr Duration kFirstReachPause = std::chrono::milliseconds(250);
constexpr Duration kLongestReachPause = std::chrono::seconds(3);

Duration PauseAfter(int attempts) {
  return std::min(kFirstReachPause * (1 << std::min(attempts - 1, 10)), kLongestReachPause);
}

// What ssh says when trying again will not help.
bool WillNotPass(std::string_view line) {
  for (const char* text : {"Permission denied", "Host key verification failed", "Bad configuration option"}) {
    if (absl::StrContains(ToAbsl(line), text)) return true;
  }
  return false;
}

std::string HowShellEnded(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return absl::StrCat("exited with code ", info.si_status);
  return absl::StrCat("was killed by signal ", info.si_status, " (", SignalDescription(info.si_status), ")");
}

}  // namespace

RemoteHost::RemoteHost(Setup setup, Poller& poller, RemoteHostEvents& events)
    : setup_(std::move(setup)), poller_(poller), events_(events) {}

void RemoteHost::Reach() {
  ++attempts_;
  state_ = State::kReaching;
  magic_seen_ = false;
  preamble_ = Preamble();
  held_lines_.clear();
  last_line_.clear();
  if (const absl::Status started = StartShell(); !started.ok()) {
    Fail({"remote shell", std::string(started.message()), "again later", kExitNotStarted});
  }
}

absl::Status RemoteHost::StartShell() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe2");
  const UniqueFd theirs(ends[0]);
  input_.Reset(ends[1]);
  const UniqueFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!null) return ErrnoStatus("/dev/null");
  RankCommand command;
  command.rank = static_cast<int>(setup_.index);
  command.path = setup_.path;
  command.arguments = setup_.command;
  for (char** entry = environ; *entry != nullptr; ++entry) command.environment.emplace_back(*entry);
  command.stdin_fd = theirs.get();
  command.error_fd = null.get();
  command.files = setup_.files;
  ASSIGN_OR_RETURN(process_, StartRank(command));
  channel_ = std::make_shared<Channel>(input_.get(), kMaxToLauncher);
  RETURN_IF_ERROR(poller_.AddReadable(process_.pidfd.get(), {Source::kHostProcess, setup_.index}));
  RETURN_IF_ERROR(poller_.AddReadable(process_.out.get(), {Source::kHostOutput, setup_.index}));
  return poller_.AddReadable(process_.err.get(), {Source::kHostError, setup_.index});
}

void RemoteHost::OnEvent(Source source) {
  if (source == Source::kHostOutput) OnOutput();
  if (source == Source::kHostError) OnError();
  if (source == Source::kHostProcess) OnProcessEnded();
}

void RemoteHost::OnOutput() {
  if (!process_.out) return;
  std::array<char, kReadBytes> buffer;
  const ssize_t count = read(process_.out.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) return Take({buffer.data(), static_cast<size_t>(count)});
  CloseOutput();
  if (state_ == State::kReached) {
    OnError();  // perhaps it says why
    Fail({"agent", absl::StrCat("its connection ended", last_line_.empty() ? "" : ": ", last_line_), "",
          kExitNotStarted});
  }
}

void RemoteHost::Take(std::string_view bytes) {
  const std::shared_ptr<Channel> channel = channel_;  // what it says may make us let it go
  if (channel == nullptr || state_ == State::kGone) return;
  if (liveness_) liveness_->OnHeard(Now());
  absl::Status status;
  if (!magic_seen_) {
    const absl::StatusOr<bool> found = preamble_.Feed(bytes);
    status = found.status();
    magic_seen_ = found.ok() && *found;
  }
  if (status.ok() && magic_seen_) {
    status = channel->Feed(bytes, [this](const Frame& frame) { return TakeFrame(frame); });
  }
  if (!status.ok() && state_ != State::kGone) {
    Fail({"agent", absl::StrCat("what it says is not understood: ", status.message()),
          absl::StrCat(QuotedCommand(setup_.command), ", and see what it prints"), kExitNotStarted});
  }
}

absl::Status RemoteHost::TakeFrame(const Frame& frame) {
  if (state_ == State::kReached) return events_.OnFrame(*this, frame);
  if (state_ == State::kGone) return absl::CancelledError("given up");
  if (frame.header.type != static_cast<uint16_t>(AgentMessage::kHello)) return absl::DataLossError("no hello");
  ASSIGN_OR_RETURN(const Hello hello, DecodeHello(frame.payload));
  state_ = State::kReached;
  BeginWatch(Now());
  last_line_.clear();
  for (const auto line : absl::StrSplit(preamble_.skipped(), '\n', absl::SkipEmpty())) {
    events_.OnNote(*this, absl::StrCat("it greets with: ", line));
  }
  events_.OnHello(*this, hello);
  return absl::OkStatus();
}

void RemoteHost::OnError() {
  if (!process_.err) return;
  std::array<char, kReadBytes> buffer;
  const ssize_t count = read(process_.err.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) return TakeError({buffer.data(), static_cast<size_t>(count)});
  TakeError("\n");  // ends what was begun
  poller_.Remove(process_.err.get());
  process_.err.Reset();
}

void RemoteHost::TakeError(std::string_view bytes) {
  error_lines_.Feed(bytes, [this](std::string_view block) {
    while (!block.empty()) {
      const size_t end = std::min(block.find_first_of("\r\n"), block.size());
      const std::string line(block.substr(0, end));
      block.remove_prefix(std::min(end + 1, block.size()));
      if (line.empty()) continue;
      last_line_ = line;
      if (lines_released_) {
        events_.OnLine(*this, line);
      } else if (held_lines_.size() < kHeldLines) {
        held_lines_.push_back(line);
      }
    }
  });
}

void RemoteHost::OnProcessEnded() {
  siginfo_t info{};
  if (process_.pid == 0 || waitid(P_PID, static_cast<id_t>(process_.pid), &info, WEXITED | WNOHANG) != 0) return;
  if (info.si_pid == 0) return;
  poller_.Remove(process_.pidfd.get());
  process_.pidfd.Reset();
  process_.pid = 0;
  // What it wrote before is still there; what others may write who got its pipes is not waited for.
  for (int i = 0; i < kLastHostReads && process_.err; ++i) OnError();
  if (process_.err) {
    poller_.Remove(process_.err.get());
    process_.err.Reset();
  }
  for (int i = 0; i < kLastHostReads && process_.out; ++i) OnOutput();
  if (process_.out) CloseOutput();
  if (state_ == State::kReaching) OnAttemptEnded(info);
  if (state_ == State::kReached) {
    Fail({"remote shell", absl::StrCat(HowShellEnded(info), last_line_.empty() ? "" : ": ", last_line_), "",
          kExitNotStarted});
  }
}

void RemoteHost::OnAttemptEnded(const siginfo_t& info) {
  last_attempt_ = HowShellEnded(info);
  if (!last_line_.empty()) absl::StrAppend(&last_attempt_, ": ", last_line_);
  const int code = info.si_code == CLD_EXITED ? info.si_status : -1;
  if (code == kRemoteShellFailed && !std::ranges::any_of(held_lines_, WillNotPass)) {
    CloseInput();
    NoteHeldLines();
    state_ = State::kWaiting;
    next_attempt_ = Now() + PauseAfter(attempts_);
    return events_.OnNote(*this, absl::StrCat("the remote shell ", last_attempt_, "; it is tried again"));
  }
  const bool absent = code == kExitNotFound || code == kExitNotExecutable;
  const std::string& gyrerun = setup_.command[setup_.command.size() - 2];
  Fail({absent ? "agent" : StageOf(last_attempt_),
        absent ? absl::StrCat(gyrerun, " cannot be run there (", last_attempt_, ")") : last_attempt_,
        absent ? "--remote-gyrerun with its path there" : QuotedCommand(setup_.command), kExitNotStarted});
}

HostFailure RemoteHost::Trouble() const {
  if (state_ == State::kGone) return failure_;
  HostFailure trouble{"agent",
                      "no word of it yet",
                      absl::StrCat(QuotedCommand(setup_.command), ", or a longer --start-timeout"),
                      kExitNotStarted,
                      setup_.name,
                      attempts_};
  if (state_ == State::kReached) {
    trouble.cause = "it was reached, but is not ready";
  } else if (!last_attempt_.empty()) {
    trouble.stage = StageOf(last_attempt_);
    trouble.cause = OneLine(last_attempt_);
  } else if (attempts_ == 0) {
    trouble.stage = "remote shell";
    trouble.cause = "not yet started";
  }
  return trouble;
}

void RemoteHost::ReleaseLines() {
  lines_released_ = true;
  for (const std::string& line : std::exchange(held_lines_, {})) events_.OnLine(*this, line);
}

// Of all that it said, only the last line is part of a failure.
void RemoteHost::NoteHeldLines() {
  for (const std::string& line : std::exchange(held_lines_, {})) events_.OnNote(*this, absl::StrCat("it said: ", line));
}

void RemoteHost::Flush() {
  if (channel_ != nullptr) channel_->Flush(poller_, {Source::kHostInput, setup_.index});
}

void RemoteHost::CheckLiveness(TimePoint now) {
  if (state_ != State::kReached || !liveness_ || !liveness_->Expired(now)) return;
  const double seconds = std::chrono::duration<double>(setup_.patience).count();
  Fail({"agent", absl::StrCat("no sign of life for ", seconds, " s"), "--host-timeout with more", kExitNotStarted});
}

void RemoteHost::CloseOutput() {
  if (process_.out) poller_.Remove(process_.out.get());
  process_.out.Reset();
}

void RemoteHost::Fail(const HostFailure& failure) {
  if (state_ == State::kGone) return;
  state_ = State::kGone;
  failure_ = {
      OneLine(failure.stage), OneLine(failure.cause), OneLine(failure.next), failure.exit_code, setup_.name, attempts_};
  CloseOutput();
  CloseInput();
  Kill();
  NoteHeldLines();
  events_.OnGone(*this);
}

void RemoteHost::CloseInput() {
  if (channel_ != nullptr) channel_->Unwatch(poller_);
  channel_.reset();
  input_.Reset();
}

void RemoteHost::Kill() {
  if (process_.pid != 0) kill(-process_.pid, SIGKILL);
}

}  // namespace gyre::launch
