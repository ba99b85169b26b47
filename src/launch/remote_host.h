// RemoteHost: a host as the launcher sees it: the remote shell that leads there, and the channel to the agent at its
// other end. Knows nothing of the job.
//
// Not thread-safe; nothing blocks. What happens is told to RemoteHostEvents, from within the calls made here.
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launch/agent_protocol.h"
#include "launch/channel.h"
#include "launch/host_failure.h"
#include "launch/line_assembler.h"
#include "launch/liveness.h"
#include "launch/poller.h"
#include "launch/rank_process.h"

namespace gyre::launch {

class RemoteHost;

class RemoteHostEvents {
 public:
  virtual ~RemoteHostEvents() = default;
  virtual void OnHello(RemoteHost& host, const Hello& hello) = 0;
  // An error says that the frame is malformed or comes at the wrong time: the host is given up.
  virtual absl::Status OnFrame(RemoteHost& host, const Frame& frame) = 0;
  virtual void OnGone(RemoteHost& host) = 0;                         // once; failure() says why
  virtual void OnLine(RemoteHost& host, std::string_view line) = 0;  // of the remote shell's standard error
  virtual void OnNote(RemoteHost& host, std::string_view note) = 0;  // for those who want to know all
};

class RemoteHost {
 public:
  enum class State { kWaiting, kReaching, kReached, kGone };

  struct Setup {
    uint32_t index = 0;  // in PollKey
    std::string name;
    std::string path;                  // of the remote shell's program
    std::vector<std::string> command;  // argv of the remote shell
    Duration patience{};               // with a silent agent
    rlimit files{};                    // RLIMIT_NOFILE of the remote shell
  };

  // `poller` and `events` must outlive it.
  RemoteHost(Setup setup, Poller& poller, RemoteHostEvents& events);

  const std::string& name() const { return setup_.name; }
  std::string prefix() const { return "host " + setup_.name + ": "; }  // of lines about it
  uint32_t index() const { return setup_.index; }
  State state() const { return state_; }
  bool process_lives() const { return process_.pid != 0; }
  const HostFailure& failure() const { return failure_; }  // why it is gone
  // Whether it is gone, or an attempt to reach it has failed and none has succeeded since.
  bool in_trouble() const { return state_ == State::kGone || (state_ != State::kReached && !last_attempt_.empty()); }
  HostFailure Trouble() const;                              // why it is gone, or not ready by now
  TimePoint next_attempt() const { return next_attempt_; }  // where the state is kWaiting
  TimePoint heard() const { return liveness_->heard(); }    // when an agent that was reached last said anything

  // Starts the remote shell. REQUIRES: kWaiting, and that its last process has ended.
  void Reach();

  void OnEvent(Source source);

  // REQUIRES: kReached.
  void Send(AgentMessage type, std::string_view payload = {}) { channel_->Send(type, payload); }
  void Flush();

  void BeginWatch(TimePoint now) { liveness_.emplace(setup_.patience, now); }
  void CheckLiveness(TimePoint now);

  // From now on, lines of standard error are told as they come, after those that were held back so far: before the job
  // starts they could only hide the one line that says why it does not.
  void ReleaseLines();

  // Gives it up, and kills the remote shell.
  void Fail(const HostFailure& failure);
  // The agent finds the end of its input, and ends.
  void CloseInput();
  void Kill();

 private:
  absl::Status StartShell();
  void OnOutput();
  void OnError();
  void OnProcessEnded();
  void OnAttemptEnded(const siginfo_t& info);
  void Take(std::string_view bytes);
  absl::Status TakeFrame(const Frame& frame);
  void TakeError(std::string_view bytes);
  void CloseOutput();
  void NoteHeldLines();

  const Setup setup_;
  Poller& poller_;
  RemoteHostEvents& events_;
  State state_ = State::kWaiting;
  HostFailure failure_;
  RankProcess process_;               // pid 0: none
  UniqueFd input_;                    // the writing end of the remote shell's standard input
  std::shared_ptr<Channel> channel_;  // shared with a call that is under way in it
  Preamble preamble_;
  bool magic_seen_ = false;
  std::optional<Liveness> liveness_;
  LineAssembler error_lines_{4096};
  bool lines_released_ = false;
  std::vector<std::string> held_lines_;  // of standard error, of this attempt, until they are released
  std::string last_line_;                // of standard error
  int attempts_ = 0;
  TimePoint next_attempt_{};
  std::string last_attempt_;  // how it ended
};

}  // namespace gyre::launch
