#include "fusion/tuner.h"

#include <algorithm>
#include <utility>

namespace gyre::fusion {

Tuner::Tuner(int plans, int first, int others) : plans_(plans), others_(others), end_(plans), best_(first) {
  Try(first + direction_);
}

// Or in the other direction, or in the other list, where that leads out of the one in course.
void Tuner::Try(int plan) {
  if (plan >= begin_ && plan < end_) return Challenge(plan);
  if (direction_ < 0 || moved_) return TryOthers();
  direction_ = -1;
  Try(best_ + direction_);
}

void Tuner::Challenge(int plan) {
  trial_ = plan;
  won_ = lost_ = 0;
}

// Once.
void Tuner::TryOthers() {
  trial_ = -1;
  if (begin_ == plans_ || others_ == 0) return;
  begin_ = plans_;
  end_ = plans_ + others_;
  enters_ = true;
  Challenge(begin_ + others_ / 2);
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
  if (std::exchange(enters_, false)) {
    if (!won) return TryOthers();
    best_ = trial_;
    direction_ = 1;
    moved_ = false;
  } else if (won) {
    best_ = trial_;
    moved_ = true;
  } else if (moved_ || direction_ < 0) {
    return TryOthers();
  } else {
    direction_ = -1;
  }
  Try(best_ + direction_);
}

}  // namespace gyre::fusion
