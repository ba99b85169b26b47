#include "fusion/tuner.h"

#include <algorithm>

namespace gyre::fusion {

Tuner::Tuner(int plans, int first) : plans_(plans), best_(first) {
  Try(first + direction_);
}

// Or in the other direction, or nothing, where that leads out of the list.
void Tuner::Try(int plan) {
  const bool exists = plan >= 0 && plan < plans_;
  if (!exists && direction_ > 0 && !moved_) {
    direction_ = -1;
    return Try(best_ + direction_);
  }
  trial_ = exists ? plan : -1;
  won_ = lost_ = 0;
}

bool Tuner::EndStep(double seconds) {
  if (steps_ > 0) seconds_[static_cast<size_t>(steps_ - 1)] = seconds;
  return ++steps_ == kTurnSteps;
}

double Tuner::Median() const {
  auto sorted = seconds_;
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

void Tuner::EndTurn(double seconds) {
  steps_ = 0;
  if (trials_turn_) {
    EndRound(seconds);
  } else {
    best_seconds_ = seconds;
  }
  trials_turn_ = !trials_turn_ && !over();
}

void Tuner::EndRound(double seconds) {
  constexpr int kMajority = kRounds / 2 + 1;
  const bool won = seconds < (1 - kGain) * best_seconds_;
  ++(won ? won_ : lost_);
  if (won_ == kMajority) return EndTrial(true);
  if (lost_ == kMajority || seconds > kHopeless * best_seconds_) EndTrial(false);
}

void Tuner::EndTrial(bool won) {
  if (won) {
    best_ = trial_;
    moved_ = true;
  } else if (moved_ || direction_ < 0) {
    trial_ = -1;
    return;
  } else {
    direction_ = -1;
  }
  Try(best_ + direction_);
}

}  // namespace gyre::fusion
