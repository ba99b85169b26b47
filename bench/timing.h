// How often a task is run, and how its time is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "contender.h"

namespace gyre::bench {

// `samples` samples of `calls` calls each, so that reading the clock does not show in short operations.
struct Effort {
  int warmup;
  int samples;
  int calls;
};

// `samples`: 0 to choose by size.
Effort EffortFor(int64_t bytes, int samples);

// Times of one operation in microseconds.
struct Times {
  double min = 0, median = 0, p99 = 0, mean = 0;
};
Times Summarize(std::vector<double> samples);

// What the calls of one contender took.
struct Samples {
  std::vector<double> times;            // microseconds a call, one number a sample, the slowest rank's
  std::optional<int64_t> wire_bytes{};  // a call, from the host that sent most; empty: see Contender::bytes_sent
};

// By contender. They take turns, sample by sample, so that what the machine does meanwhile hits them alike. All ranks
// call it alike.
absl::StatusOr<std::vector<Samples>> Measure(Communicator& world, std::span<Contender* const> contenders, bool in_place,
                                             const Effort& effort);

}  // namespace gyre::bench
