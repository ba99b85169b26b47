// LocalRanks: the ranks of this host: their processes, how they end, and the signals they get.
//
// The dead are not reaped before the end, so that no number of theirs comes to mean another process (group) while it
// may still be signalled. Not thread-safe; blocks only where it says so.
#pragma once

#include <sys/resource.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launch/poller.h"
#include "launch/rank_process.h"
#include "launch/root_cause.h"

namespace gyre::launch {

class LocalRanks {
 public:
  explicit LocalRanks(Poller& poller) : poller_(poller) {}  // must outlive it

  // Makes the calling process the one to whom orphans fall, and room for descriptors.
  absl::Status Prepare();

  struct Started {
    pid_t pid = 0;
    UniqueFd out;  // reading ends, non-blocking
    UniqueFd err;
  };
  // `command` without error_fd and files. Its end shows as Source::kRank, under the number of starts before it.
  absl::StatusOr<Started> Start(RankCommand command);
  // No more are started, and no error of theirs comes.
  void AllStarted() { exec_errors_write_.Reset(); }

  // How the rank of that index has ended, if it has and was not told before.
  std::optional<RankEnd> OnReadable(uint32_t index);

  // To what a dead rank has left in its process group.
  void KillGroup(uint32_t index);
  // To the living whose number is `from` or more.
  void SignalFrom(int from, int signal);

  static constexpr int kAll = std::numeric_limits<int>::max();

  // To all whose number is below `bound`, with what they have started. What is to end a stopped rank lets it go on,
  // too.
  void Signal(int signal, int bound = kAll);

  struct Change {
    int rank = 0;
    pid_t pid = 0;
    int signal = 0;  // what stopped it, or 0: it goes on
  };
  static constexpr Duration kBetweenLooks = std::chrono::milliseconds(100);  // at the children

  // Since the last call; for SIGCHLD. Takes a look at all of /proc, and reaps orphans that have died.
  std::vector<Change> LookAtChildren();

  bool ended() const { return alive_ == 0; }  // all that were started
  // Of those whose number is below `bound`:
  bool any_goes_on(int bound = kAll) const;                  // is alive and not stopped
  std::vector<std::string> Stopped(int bound = kAll) const;  // "3 (pid 123)"

  // Kills whatever the ranks have left behind. Blocks for 5 s at most; false if something hangs in the kernel. From
  // then on nothing is signalled any more.
  bool KillWhatIsLeft();

 private:
  struct Rank {
    int rank = 0;
    pid_t pid = 0;
    UniqueFd pidfd;
    bool alive = true;
    int exec_error = 0;
  };

  void ReadExecErrors();

  Poller& poller_;
  UniqueFd exec_errors_;        // reading end; one record per rank that could not execute
  UniqueFd exec_errors_write_;  // closed once all have started
  rlimit files_{};
  std::vector<Rank> ranks_;
  size_t alive_ = 0;
  bool all_reaped_ = false;  // the ranks' numbers may mean other processes from now on
};

}  // namespace gyre::launch
