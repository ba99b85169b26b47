#include "timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

using Clock = std::chrono::steady_clock;

absl::StatusOr<double> TakeSample(Communicator& world, Contender& contender, bool in_place, int calls) {
  RETURN_IF_ERROR(world.Barrier());
  RETURN_IF_ERROR(contender.Run(in_place));  // in step, and its code and lines in the caches
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) RETURN_IF_ERROR(contender.Run(in_place));
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
  return elapsed.count() / calls;
}

}  // namespace

Effort EffortFor(int64_t bytes, int samples) {
  Effort effort{.warmup = 3, .samples = 10, .calls = 1};
  if (bytes <= (64 << 10)) {
    effort = {.warmup = 100, .samples = 200, .calls = 50};
  } else if (bytes <= (1 << 20)) {
    effort = {.warmup = 20, .samples = 200, .calls = 2};
  } else if (bytes <= (16 << 20)) {
    effort = {.warmup = 5, .samples = 40, .calls = 1};
  }
  if (samples > 0) effort.samples = samples;
  return effort;
}

Times Summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto at = [&](double quantile) {
    return samples[static_cast<size_t>(std::lround(quantile * static_cast<double>(samples.size() - 1)))];
  };
  return {samples.front(), at(0.5), at(0.99)};
}

absl::StatusOr<std::vector<std::vector<double>>> Measure(Communicator& world, std::span<Contender* const> contenders,
                                                         bool in_place, const Effort& effort) {
  std::vector<std::vector<double>> times(contenders.size());
  for (Contender* contender : contenders) {
    for (int i = 0; i < effort.warmup; ++i) RETURN_IF_ERROR(contender->Run(in_place));
  }
  for (int sample = 0; sample < effort.samples; ++sample) {
    for (size_t c = 0; c < contenders.size(); ++c) {
      ASSIGN_OR_RETURN(const double time, TakeSample(world, *contenders[c], in_place, effort.calls));
      times[c].push_back(time);
    }
  }
  for (auto& samples : times) RETURN_IF_ERROR(world.AllReduce(samples, {.op = ReduceOp::kMax}));
  return times;
}

}  // namespace gyre::bench
