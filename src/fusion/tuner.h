// Tuner: which of a few plans is the fastest, found out by using them in turn. Pure: ranks that give it the same times
// of turns use the same plan in every step, and end alike.
//
// The plans are in an order, from the finest buckets to the coarsest, and one of them is in use. A trial sets the next
// coarser one against it: both are used for kTurnSteps steps in turn, which is a round. It is decided by best of
// kRounds rounds, so that a slow minute of the machine, which hits both turns of a round, says nothing, and neither do
// two odd rounds. A plan that wins takes the other's place, and the next one in the same direction is tried; if the
// coarser one loses, the finer one is tried. When that has ended, the middle one of a second list, of plans made in
// another way, is set against the one that won; if it wins, its neighbours are tried likewise. No plan is tried twice,
// so there is nothing to flap between.
#pragma once

#include <array>
#include <cstddef>

namespace gyre::fusion {

class Tuner {
 public:
  static constexpr int kTurnSteps = 6;      // of which the first does not count: it follows another plan
  static constexpr int kRounds = 5;         // at most: who has won three has won
  static constexpr double kGain = 0.05;     // of the time of the plan in use: a round's winner saves more
  static constexpr double kHopeless = 1.5;  // times that: the trial ends with its first such round

  // There are `plans`, of which number `first` is in use, and behind them `others`, the second list. REQUIRES: 0 <=
  // first < plans, 0 <= others.
  Tuner(int plans, int first, int others = 0);

  bool over() const { return trial_ < 0; }                       // current() stays
  int best() const { return best_; }                             // the plan in use, whatever is tried
  int current() const { return trials_turn_ ? trial_ : best_; }  // the coming step's plan

  // A step has taken so long on this rank. True: the turn has ended, and EndTurn comes next. REQUIRES: !over().
  bool EndStep(double seconds);

  // The median of the turn's steps that count, on this rank. REQUIRES: EndStep returned true.
  double Median() const;

  // What the turn's steps took on the slowest rank; the same number on all ranks. May change current() and over().
  void EndTurn(double seconds);

 private:
  void EndRound(double seconds);
  void EndTrial(bool won);
  void Try(int plan);
  void Challenge(int plan);
  void TryOthers();

  const int plans_, others_;
  int begin_ = 0, end_;  // the list in course
  int best_;
  int trial_ = -1;       // -1: none is left
  int direction_ = 1;    // of the trial: 1 is coarser
  bool moved_ = false;   // a trial was won: what lies in the other direction has lost
  bool enters_ = false;  // the trial is the second list's first
  bool trials_turn_ = false;
  double best_seconds_ = 0;  // of the round's first turn
  int won_ = 0, lost_ = 0;   // rounds of the trial
  int steps_ = 0;            // of the turn
  std::array<double, kTurnSteps - 1> seconds_{};
};

}  // namespace gyre::fusion
