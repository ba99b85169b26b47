// gyre-bench ps: pushing gradients to the job's parameter servers, and pulling what they have made of them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "timing.h"

namespace gyre::bench {

absl::Status RunServers(const ServersOptions& options) {
  ASSIGN_OR_RETURN(auto runtime, Runtime::Create());
  Communicator& world = runtime->world();
  // Only what is measured: no push is kept for a server that might die, no snapshot is written but the first.
  ASSIGN_OR_RETURN(auto client, ParameterServerClient::Create(world, std::nullopt,
                                                              {.consistency = Consistency::kBsp,
                                                               .snapshot_interval = std::chrono::hours(1),
                                                               .retain_bytes = 0}));
  std::vector<float> weights(static_cast<size_t>(options.elements));
  ASSIGN_OR_RETURN(const int index, client->Register("weights", weights));
  RETURN_IF_ERROR(client->Start());
  const std::span<float> gradient = client->gradient(index);
  std::ranges::fill(gradient, static_cast<float>(world.rank() + 1));
  std::vector<double> times(static_cast<size_t>(options.samples));
  constexpr int kWarmUp = 3;
  for (int sample = -kWarmUp; sample < options.samples; ++sample) {
    RETURN_IF_ERROR(world.Barrier());
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(client->PushPull());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (sample >= 0) times[static_cast<size_t>(sample)] = took.count();
  }
  // Each step has added the mean of 1, 2, ..., and this is what all steps together come to.
  const float expected = 0.5f * static_cast<float>(world.size() + 1) * static_cast<float>(options.samples + kWarmUp);
  if (const auto wrong = std::ranges::find_if(weights, [&](float value) { return value != expected; });
      wrong != weights.end()) {
    return absl::DataLossError("the servers' values are not what was pushed");
  }
  RETURN_IF_ERROR(world.AllReduce(times, {.op = ReduceOp::kMax}));
  if (world.rank() != 0) return absl::OkStatus();
  const Times summary = Summarize(std::move(times));
  std::printf("# push and pull of %lld floats, %d workers, ms\n", static_cast<long long>(options.elements),
              world.size());
  std::printf("#     min    median       p99\n%9.2f %9.2f %9.2f\n", summary.min, summary.median, summary.p99);
  return absl::OkStatus();
}

}  // namespace gyre::bench
