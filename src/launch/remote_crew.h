// RemoteCrew: the ranks of a job on hosts that a remote shell leads to, each host under an agent of its own.
//
// All agents first get the job and say that they are ready; then they are told to start, all or none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/crew.h"
#include "launch/host_clock.h"
#include "launch/hosts.h"
#include "launch/input_forwarder.h"
#include "launch/job.h"
#include "launch/options.h"
#include "launch/output_mux.h"
#include "launch/poller.h"
#include "launch/remote_host.h"

namespace gyre::launch {

class RemoteCrew final : public Crew, public RemoteHostEvents {
 public:
  // All but `rank_hosts` must outlive it. REQUIRES: `rank_hosts` is not empty. Hosts for servers alone come from the
  // options.
  RemoteCrew(const Options& options, const std::vector<HostRanks>& rank_hosts, const JobKeys& keys, Poller& poller,
             OutputMux& output, CrewEvents& events);

  int size() const override { return size_; }
  void Start() override;
  const std::optional<StartFailure>& failure() const override { return failure_; }
  void OnEvent(PollKey key) override;
  void OnChildChanged() override {}
  std::optional<TimePoint> next() const override;
  void OnTime(TimePoint now) override;
  void Signal(int signal) override;
  void TakeStacks() override;
  bool ended() const override;
  bool any_goes_on() const override;
  std::vector<std::string> Stopped() const override;
  bool EndWhatIsLeft() override;
  bool output_under_way() const override;
  void Close() override;

 private:
  enum class Phase { kReaching, kRunning, kFinishing, kCancelled };

  struct Rank {  // or server
    pid_t pid = 0;
    bool alive = true;
    bool stopped = false;
    uint32_t stream = 0;  // of its output in output_
  };
  struct Host {
    HostRanks ranks;
    HostServers servers{};
    std::unique_ptr<RemoteHost> remote;
    HostClock clock{};
    bool ready = false;
    bool reached_store = false;
    HostFacts facts{};                            // once it is ready
    std::vector<std::string> server_addresses{};  // likewise
    double skew = 0;                              // seconds that its clock is ahead of ours
    bool done = false;
    uint32_t credit = 0;  // owed to it
    // A message of its agent has come with this time. Returns when that was here.
    TimePoint Here(TimePoint there) { return clock.OnHeard(there, remote->heard()); }
    bool open() const { return remote->state() == RemoteHost::State::kReached; }
  };

  absl::Status Prepare();
  bool Missing(const Host& host) const;
  HostFailure TroubleOf(const Host& host) const;
  void StartMore(TimePoint now);
  void StartRanks();
  void OnTimeBeforeStart(TimePoint now);
  std::vector<HostFailure> Troubles(bool late) const;
  void FailStart(bool late);
  std::vector<std::string> Table() const;
  std::vector<std::string> WhatToKnowOfHosts() const;
  void EndPreflight();
  AgentJob JobFor(const Host& host) const;

  // RemoteHostEvents
  void OnHello(RemoteHost& remote, const Hello& hello) override;
  absl::Status OnFrame(RemoteHost& remote, const Frame& frame) override;
  void OnGone(RemoteHost& remote) override;
  void OnLine(RemoteHost& remote, std::string_view line) override;
  void OnNote(RemoteHost& remote, std::string_view note) override;

  absl::Status OnReady(Host& host, std::string_view payload);
  absl::Status OnReached(Host& host, std::string_view payload);
  absl::Status OnBeat(Host& host, std::string_view payload);
  absl::Status OnFailed(Host& host, std::string_view payload);
  absl::Status OnPid(Host& host, std::string_view payload);
  absl::Status OnOutput(Host& host, const Frame& frame);
  absl::Status OnEnd(Host& host, std::string_view payload);
  absl::Status OnState(Host& host, std::string_view payload);
  absl::Status OnInputTaken(std::string_view payload);
  absl::Status OnDone(Host& host);
  absl::Status OnReport(const Host& host, std::string_view payload);
  void OnHostNote(const Host& host, std::string_view lines);
  absl::Status OnUsage(Host& host, std::string_view payload);
  absl::StatusOr<Rank*> RankOf(const Host& host, uint32_t rank);
  absl::Status ReopenStreams(const Host& host, uint32_t number);
  void EndOfServer(RankEnd end);
  std::string NameOf(int number) const;
  std::vector<int> NumbersOf(const Host& host) const;
  void CloseStreams(const Host& host);
  void LoseRanks(const Host& host);

  const Options& options_;
  Poller& poller_;
  OutputMux& output_;
  CrewEvents& events_;
  std::vector<Host> hosts_;
  int size_ = 0;             // ranks
  std::vector<Rank> ranks_;  // by number: and then the servers
  int alive_ = 0;            // ranks
  Phase phase_ = Phase::kReaching;
  const JobKeys& keys_;
  std::string directory_;        // where the ranks run
  std::string store_;            // its endpoint, once known
  bool reaching_store_ = false;  // all hosts are ready, and are to try the way there
  std::optional<InputForwarder> input_;
  TimePoint start_deadline_{};
  std::optional<uint32_t> first_gone_;  // of the hosts, before the start
  TimePoint fail_at_{};                 // then: when others have had the time to show the same trouble
  TimePoint start_{};
  TimePoint next_beat_{};
  bool closing_ = false;
  std::optional<StartFailure> failure_;
};

}  // namespace gyre::launch
