// Progress on standard output: a live bar on a terminal, elsewhere a line every two seconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace char_lm {

// Time spent in training steps so far.
struct StepTimes {
  double seconds = 0;                // all of it
  double communication_seconds = 0;  // inside gyre's calls
  int64_t steps = 0;                 // in this process; a resumed training's earlier ones are not among them

  double steps_per_second() const { return seconds > 0 ? static_cast<double>(steps) / seconds : 0; }
  double communication_fraction() const { return seconds > 0 ? communication_seconds / seconds : 0; }
};

class Progress {
 public:
  // Prints nothing unless `enabled`.
  Progress(bool enabled, int64_t total_steps, int64_t batch);

  // After each step; `step` counts from 1.
  void Step(int64_t step, double loss, const StepTimes& times);

  // Leaves the bar's line, so that what is printed next starts on one of its own.
  void EndLine();

 private:
  using Clock = std::chrono::steady_clock;

  bool enabled_;
  bool terminal_;
  int64_t total_steps_;
  int64_t batch_;
  Clock::time_point shown_;  // when it was last
  double loss_sum_ = 0;      // of the steps since
  int64_t loss_count_ = 0;
  bool line_open_ = false;
};

}  // namespace char_lm
