// The phases of a job, found in what it used. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/usage_trace.h"

namespace gyre::launch {

// A stretch of time, and what was used in it.
struct UsageSample {
  double begin = 0;  // seconds since the start
  double end = 0;
  double cpus = 0;    // on average
  double memory = 0;  // bytes, at its end
  std::string activity{};
  double gpus = 0;        // busy ones, on average; 0 where nobody knows
  double gpu_memory = 0;  // bytes, at its end, likewise

  double seconds() const { return end - begin; }
};

// What the ranks from `first` to before `last` used together, over the stretches between the looks at the lowest of
// them that the trace has; the activity is that one's. Empty if the trace has none of them.
std::vector<UsageSample> SumOfRanks(std::span<const UsageRow> rows, int first, int last);

// Where what is used begins to be something else: indices of samples, ascending, without 0. Least squares: a constant
// for the processors and a line for the memory (which grows while something is loaded) between two change points, and
// a penalty for each of them by the Bayesian information criterion. Found by PELT (Killick, Fearnhead, Eckley: Optimal
// detection of changepoints with a linear computational cost, JASA 107, 2012, section 3). The noise is estimated from
// differences of neighbours. The sample in which a change lies is like neither side, and counts for none; what is
// unlike its neighbours for one sample only is no change. No two are nearer than three samples.
std::vector<size_t> ChangePoints(std::span<const UsageSample> samples);

struct UsagePhase {
  double begin = 0;
  double end = 0;
  std::string activity{};  // what the program called it, or nothing
  std::vector<UsageSample> samples{};
};

// A stretch of one activity is a phase; one without is divided at its change points.
std::vector<UsagePhase> FindPhases(std::span<const UsageSample> samples);

}  // namespace gyre::launch
