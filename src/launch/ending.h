// Ending: when and how a job is brought to its end. A pure state machine: it is told what happens and answers with
// the signal to send to all ranks now, or 0.
//
//   running -> settling (a rank failed) -> terminating (TERM is out) -> killing (KILL is out)
//
// The first reason stays the reason. Not thread-safe.
#pragma once

#include <optional>

#include "base/clock.h"

namespace gyre::launch {

enum class EndReason { kNone, kRankFailed, kTimeout, kSignal, kOutputLost, kGuardLost };

// Of pipes that somebody out of reach still holds open: once all ranks are dead and nothing has come for so long, they
// are closed.
inline constexpr Duration kPipeSilence = std::chrono::seconds(1);

class Ending {
 public:
  struct Limits {
    Duration settle{};                // from the first failure to TERM
    Duration grace{};                 // from TERM to KILL
    std::optional<Duration> timeout;  // of the whole job
  };

  Ending(const Limits& limits, TimePoint start);

  int OnRankFailed(TimePoint now);
  int OnOnlyStoppedLeft(TimePoint now);  // all ranks that live are stopped: after a failure no use in waiting for them
  int OnSignal(int signal, TimePoint now);  // INT, TERM, HUP or QUIT, sent to gyrerun
  int OnOutputLost(TimePoint now);
  int OnGuardLost(TimePoint now);
  int OnTime(TimePoint now);  // to be called when next() has come

  EndReason reason() const { return reason_; }
  int signal() const { return signal_; }  // where the reason is kSignal
  bool told() const { return phase_ >= Phase::kTerminating; }
  bool killing() const { return phase_ == Phase::kKilling; }
  bool given_up() const { return given_up_; }  // KILL was sent long ago: what still lives hangs in the kernel

  // When OnTime has something to do, if ever.
  std::optional<TimePoint> next() const { return next_; }

 private:
  enum class Phase { kRunning, kSettling, kTerminating, kKilling };

  int Begin(EndReason reason, int signal, TimePoint now);
  int Terminate(int signal, TimePoint now, Duration grace);
  int Kill(TimePoint now);

  const Limits limits_;
  Phase phase_ = Phase::kRunning;
  EndReason reason_ = EndReason::kNone;
  int signal_ = 0;
  std::optional<TimePoint> next_;
  std::optional<TimePoint> interrupted_;
  bool given_up_ = false;
};

}  // namespace gyre::launch
