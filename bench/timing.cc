#include "timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

using Clock = std::chrono::steady_clock;

// `sent`: what this rank has sent for the sample's calls is added to it.
absl::StatusOr<double> TakeSample(Communicator& world, Contender& contender, bool in_place, int calls,
                                  std::optional<int64_t>& sent) {
  RETURN_IF_ERROR(world.Barrier());
  const auto before = contender.bytes_sent();
  RETURN_IF_ERROR(contender.Run(in_place));  // in step, and its code and lines in the caches
  RETURN_IF_ERROR(contender.Finish());
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) RETURN_IF_ERROR(contender.Run(in_place));
  RETURN_IF_ERROR(contender.Finish());
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
  const auto after = contender.bytes_sent();
  if (before && after) sent = sent.value_or(0) + *after - *before;
  return elapsed.count() / calls;
}

// Of what all ranks have sent in `calls` calls, the most that one host has, for one call.
absl::StatusOr<int64_t> MostOfAHost(Communicator& world, int64_t sent, int64_t calls) {
  std::vector<int64_t> by_host(static_cast<size_t>(world.node_count()));
  by_host[static_cast<size_t>(world.node_rank())] = sent;
  RETURN_IF_ERROR(world.AllReduce(by_host));
  return std::ranges::max(by_host) / calls;
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
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  return {samples.front(), at(0.5), at(0.99), sum / static_cast<double>(samples.size())};
}

absl::StatusOr<std::vector<Samples>> Measure(Communicator& world, std::span<Contender* const> contenders, bool in_place,
                                             const Effort& effort) {
  std::vector<Samples> taken(contenders.size());
  for (Contender* contender : contenders) {
    for (int i = 0; i < effort.warmup; ++i) RETURN_IF_ERROR(contender->Run(in_place));
  }
  for (int sample = 0; sample < effort.samples; ++sample) {
    for (size_t c = 0; c < contenders.size(); ++c) {
      ASSIGN_OR_RETURN(const double time,
                       TakeSample(world, *contenders[c], in_place, effort.calls, taken[c].wire_bytes));
      taken[c].times.push_back(time);
    }
  }
  const int64_t calls = int64_t{effort.samples} * (effort.calls + 1);
  for (Samples& samples : taken) {
    RETURN_IF_ERROR(world.AllReduce(samples.times, {.op = ReduceOp::kMax}));
    if (!samples.wire_bytes) continue;
    ASSIGN_OR_RETURN(samples.wire_bytes, MostOfAHost(world, *samples.wire_bytes, calls));
  }
  return taken;
}

}  // namespace gyre::bench
