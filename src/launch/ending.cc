#include "launch/ending.h"

#include <algorithm>
#include <chrono>
#include <csignal>

namespace gyre::launch {

namespace {

// A second interrupt this soon after the first is the same one: timeout(1) and shells signal the process and its
// group.
constexpr auto kSameInterrupt = std::chrono::milliseconds(250);

// From KILL to giving up.
constexpr Duration kDeathTakes = std::chrono::seconds(5);

// Nobody waits for the job once gyrerun itself was killed.
constexpr Duration kGraceWithoutGuard = std::chrono::seconds(1);

}  // namespace

Ending::Ending(const Limits& limits, TimePoint start) : limits_(limits) {
  if (limits.timeout) next_ = DeadlineAfter(start, *limits.timeout);
}

int Ending::OnRankFailed(TimePoint now) {
  if (phase_ != Phase::kRunning) return 0;
  reason_ = EndReason::kRankFailed;
  phase_ = Phase::kSettling;
  next_ = DeadlineAfter(now, limits_.settle);
  return 0;
}

int Ending::OnOnlyStoppedLeft(TimePoint now) {
  return phase_ == Phase::kSettling ? Terminate(SIGTERM, now, limits_.grace) : 0;
}

int Ending::OnSignal(int signal, TimePoint now) {
  if (signal == SIGINT) {
    if (interrupted_ && now - *interrupted_ < kSameInterrupt) return 0;
    interrupted_ = now;
    if (told()) return killing() ? 0 : Kill(now);
  }
  return Begin(EndReason::kSignal, signal, now);
}

int Ending::OnOutputLost(TimePoint now) {
  return Begin(EndReason::kOutputLost, SIGTERM, now);
}

int Ending::OnGuardLost(TimePoint now) {
  if (reason_ == EndReason::kNone) reason_ = EndReason::kGuardLost;
  if (killing()) return 0;
  return Terminate(SIGTERM, now, std::min(limits_.grace, kGraceWithoutGuard));
}

int Ending::OnTime(TimePoint now) {
  if (!next_ || now < *next_) return 0;
  switch (phase_) {
    case Phase::kRunning: return Begin(EndReason::kTimeout, SIGTERM, now);
    case Phase::kSettling: return Terminate(SIGTERM, now, limits_.grace);
    case Phase::kTerminating: return Kill(now);
    case Phase::kKilling: break;
  }
  given_up_ = true;
  next_.reset();
  return 0;
}

int Ending::Begin(EndReason reason, int signal, TimePoint now) {
  if (told()) return 0;
  if (reason_ == EndReason::kNone) {
    reason_ = reason;
    signal_ = signal;
  }
  return Terminate(signal, now, limits_.grace);
}

int Ending::Terminate(int signal, TimePoint now, Duration grace) {
  phase_ = Phase::kTerminating;
  next_ = DeadlineAfter(now, grace);
  return signal;
}

int Ending::Kill(TimePoint now) {
  phase_ = Phase::kKilling;
  next_ = DeadlineAfter(now, kDeathTakes);
  return SIGKILL;
}

}  // namespace gyre::launch
