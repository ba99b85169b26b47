// Crew: the ranks of a job, wherever they run, as the supervisor sees them: it starts them, signals them, and tells how
// they end. LocalCrew has them on this host, RemoteCrew on others.
//
// All on the supervisor's thread. Nothing blocks but where it says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "launch/poller.h"
#include "launch/rank_watch.h"
#include "launch/root_cause.h"

namespace gyre::launch {

// What a crew tells.
class CrewEvents {
 public:
  virtual ~CrewEvents() = default;
  virtual void OnStarted() = 0;  // now the ranks start; times are counted from here
  virtual void OnRankEnded(RankEnd end) = 0;
  virtual void OnRankStoppedOrNot() = 0;  // a rank was stopped or goes on, or a stopped one is all that is left
  virtual void Verbose(const std::string& line) = 0;
  virtual bool told() const = 0;     // the ranks were sent a signal to end
  virtual WatchEvents& watch() = 0;  // what they do and use
};

// Why a job was not started: one line to print, gyrerun's exit code (0: that was all that was asked), and then lines
// that tell of every host, if it is time that has run out, or if that was asked.
struct StartFailure {
  std::string line;
  int exit_code = 0;
  std::vector<std::string> table{};
};

class Crew {
 public:
  virtual ~Crew() = default;

  virtual int size() const = 0;  // ranks

  // Starts the ranks, or begins to.
  virtual void Start() = 0;
  virtual const std::optional<StartFailure>& failure() const = 0;

  // An event of one of its sources: kRank and those from kHostOutput on.
  virtual void OnEvent(PollKey key) = 0;
  virtual void OnChildChanged() = 0;                  // SIGCHLD came
  virtual std::optional<TimePoint> next() const = 0;  // when OnTime is to be called at the latest
  virtual void OnTime(TimePoint now) = 0;             // called after each round of events

  virtual void Signal(int signal) = 0;  // to all ranks; 0 is none
  virtual void TakeStacks() = 0;        // of all ranks; they come as notes
  virtual bool ended() const = 0;       // all ranks have, or it never came to a start
  virtual bool any_goes_on() const = 0;
  virtual std::vector<std::string> Stopped() const = 0;

  // All ranks have ended, or were given up: to end what they left behind. May block for 5 s; false if something hangs.
  virtual bool EndWhatIsLeft() = 0;
  // Output may still come that EndWhatIsLeft did not wait for.
  virtual bool output_under_way() const = 0;
  // After the last output: nothing of the job, nor of what carried it, is left on return. May block for some seconds.
  virtual void Close() = 0;
};

}  // namespace gyre::launch
