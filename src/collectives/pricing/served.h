// How fast a job trains through parameter servers: its steps one by one, by what a step computes, what the links carry,
// how far workers may be apart, and who is slower when. Stragglers and their remedies: Ho et al., "More Effective
// Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013, section 2. Pure.
//
// Servers take pushes one after the other, and send values so, both at once; a push is on its way as the values of what
// it brings go back, so that a worker alone takes `link_seconds` for both. In step, a step without stragglers takes the
// computation and what advice.h says of the exchange.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::internal {

// Who is slower, and how often: the first `permanent` workers always, and each worker in a step with `probability`.
struct Slowdown {
  int permanent = 0;
  double probability = 0;
  double factor = 10;
  uint64_t seed = 1;
};

// How many times as long the computation of this worker's step takes; the same for whoever asks.
double SlowdownOf(const Slowdown& slowdown, int worker, int64_t step);

struct ServedQuestion {
  int workers = 1;
  double compute_seconds = 0;        // of a step that is not slowed down
  Slowdown slowdown{};               //
  std::optional<int64_t> bound = 0;  // of steps between workers: 0: in step (BSP); none: asynchronous
  double link_seconds = 0;           // that a worker's link takes to carry the model once
  double server_seconds = 0;         // that the servers are busy with one worker's push, or with its values
  double latency_seconds = 0;        // there and back
  int64_t most_steps = 0;            // of all workers together: where to stop; at least 1
  double most_seconds = std::numeric_limits<double>::infinity();  // likewise
};

// When steps end, whosever they are: ascending, seconds from the beginning of the first. Time grows with the steps, a
// million take a second or two. kInvalidArgument names what is out of its range.
absl::StatusOr<std::vector<double>> ServedSteps(const ServedQuestion& question);

// Of ServedSteps, steps a second of all workers, but for the first third, in which they fall out of step.
// REQUIRES: at least 3 steps a worker
double SteadyRate(const std::vector<double>& ends, int workers);

}  // namespace gyre::internal
