// LocalCrew: all ranks of a job on this host, and its parameter servers.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/crew.h"
#include "launch/job.h"
#include "launch/lives.h"
#include "launch/local_ranks.h"
#include "launch/options.h"
#include "launch/output_mux.h"
#include "launch/poller.h"
#include "launch/rank_watch.h"
#include "launch/server_ranks.h"

namespace gyre::launch {

class LocalCrew final : public Crew {
 public:
  // All must outlive it. `path`: of the program.
  LocalCrew(const Options& options, const std::string& path, const JobKeys& keys, Poller& poller, OutputMux& output,
            CrewEvents& events)
      : options_(options),
        path_(path),
        keys_(keys),
        output_(output),
        events_(events),
        ranks_(poller),
        watch_(poller, events.watch()),
        lives_(options.restart_rank) {}

  int size() const override { return options_.ranks; }
  void Start() override;
  const std::optional<StartFailure>& failure() const override { return failure_; }
  void OnEvent(PollKey key) override;
  void OnChildChanged() override;
  std::optional<TimePoint> next() const override;
  void OnTime(TimePoint now) override;
  // Servers end with the ranks, and know no signal but that.
  void Signal(int signal) override { ranks_.Signal(signal, signal == SIGKILL ? LocalRanks::kAll : options_.ranks); }
  void TakeStacks() override;
  bool ended() const override { return ranks_.ended() && lives_.none_due(); }
  bool any_goes_on() const override { return ranks_.any_goes_on(options_.ranks); }
  std::vector<std::string> Stopped() const override { return ranks_.Stopped(options_.ranks); }
  bool EndWhatIsLeft() override { return ranks_.KillWhatIsLeft(); }
  bool output_under_way() const override { return false; }
  void Close() override {}

 private:
  absl::Status StartAll();
  absl::Status StartOne(int number);
  std::vector<std::string> Environment(int number, uint64_t life) const;
  bool IsServer(int number) const { return number >= options_.ranks; }
  std::string NameOf(int number) const;
  void Ended(RankEnd end);
  void StartNobodyAgain();
  void EndServers();

  const Options& options_;
  const std::string& path_;
  const JobKeys& keys_;
  OutputMux& output_;
  CrewEvents& events_;
  LocalRanks ranks_;
  ServerRanks servers_;
  RankWatch watch_;
  std::optional<Job> job_;
  UniqueFd null_;
  std::optional<StartFailure> failure_;
  std::optional<TimePoint> look_at_children_;  // when, since some child has changed
  Lives lives_;                                // by number: ranks, then servers
  std::optional<TimePoint> kill_servers_;      // those that have not ended by then
  int working_ = 0;                            // ranks that live, or will again
};

}  // namespace gyre::launch
