// The agent: gyrerun on a host, below a remote shell, for a gyrerun elsewhere (the launcher) that started it. Speaks
// with the launcher over its standard input and output, and starts, watches and ends the ranks of its host.
//
// Whoever loses the other ends: an agent without launcher ends its ranks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launch/agent_job.h"
#include "launch/agent_protocol.h"
#include "launch/channel.h"
#include "launch/ending.h"
#include "launch/liveness.h"
#include "launch/lives.h"
#include "launch/local_ranks.h"
#include "launch/output_forwarder.h"
#include "launch/poller.h"
#include "launch/rank_input.h"
#include "launch/rank_watch.h"
#include "launch/watch_protocol.h"

namespace gyre::launch {

// Not thread-safe.
class Agent final : public WatchEvents {
 public:
  // `guard_pidfd`: readable once the guard has died.
  explicit Agent(int guard_pidfd);

  // Returns the agent's exit code. The signals of TakeSignals must be blocked. Blocks for as long as the job runs.
  int Run();

  // WatchEvents
  void OnReport(const RankReport& report) override { channel_.Send(AgentMessage::kReport, EncodeReport(report)); }
  void OnUsage(TimePoint when, const std::vector<RankUsage>& usage) override {
    channel_.Send(AgentMessage::kUsage, EncodeUsage({when, usage}));
  }
  void OnNote(std::string_view lines) override { channel_.Send(AgentMessage::kNote, lines); }

 private:
  absl::Status Prepare();

  void Step();
  TimePoint Next() const;
  void OnInput();
  absl::Status OnFrame(const Frame& frame);
  void OnRankEnded(uint32_t index);
  void OnSignals();
  void OnTime(TimePoint now);
  void LookAtChildren();
  void SendTime();

  absl::Status OnSettings(std::string_view payload);
  absl::Status OnJob(std::string_view payload);
  absl::Status OnReach(std::string_view store);
  absl::Status OnStart(std::string_view payload);
  absl::Status StartRanks();
  absl::Status StartOne(int number);
  void StartAgain(TimePoint now);
  void StartNobodyAgain();
  bool IsServer(int number) const { return number >= static_cast<int>(job_message_->size); }
  std::string NameOf(int number) const;
  RankCommand CommandOf(int number, uint64_t life) const;
  absl::Status OnSignalMessage(std::string_view payload);
  void SignalAll(int signal);

  // The job cannot go on here, for a reason that the launcher is to know, or that is its loss. Ends the ranks.
  void Fail(const Failure& failure);
  void LoseLauncher(std::string_view why);
  void EndRanks();

  void EndServers();  // may take --grace
  void Finish();
  void Leave();  // sends what is still unsent

  const int guard_pidfd_;
  Poller poller_;
  Liveness launcher_;
  Channel channel_;
  LocalRanks ranks_;
  OutputForwarder output_;
  RankWatch watch_;
  WatchSettings settings_;
  RankInput input_;
  UniqueFd signals_;
  UniqueFd null_;
  UniqueFd input_end_;  // what rank 0 reads
  std::optional<AgentJob> job_message_;
  std::optional<AgentDuty> duty_;     // once it is ready
  std::vector<std::string> servers_;  // the job's, once it starts: "HOST:PORT"
  std::optional<Lives> lives_;        // with the job; by number: ranks of the job, then servers
  TimePoint next_beat_{};
  std::optional<TimePoint> look_at_children_;
  std::optional<Ending> ending_;  // once this host is to end by itself
  bool started_ = false;
  bool told_ = false;      // the ranks were sent a signal to end
  bool guarded_ = true;    // by a guard that lives
  bool listening_ = true;  // to the launcher
  bool finish_ = false;    // the launcher says that all ranks have ended
  bool over_ = false;      // nothing more to do here
};

}  // namespace gyre::launch
