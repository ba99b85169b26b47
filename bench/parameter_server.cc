// gyre-bench ps: pushing gradients to the job's parameter servers, and pulling what they have made of them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "timing.h"

namespace gyre::bench {

namespace {

ValueFormat ParseValues(const std::string& name) {
  if (name == "f16") return ValueFormat::kF16;
  if (name == "bf16") return ValueFormat::kBF16;
  return name == "int8" ? ValueFormat::kInt8 : ValueFormat::kF32;
}

absl::StatusOr<std::unique_ptr<ParameterServerClient>> MakeClient(Communicator& world, const ServersOptions& options) {
  ASSIGN_OR_RETURN(const Compression compression, ParseCompression(options.compression));
  // A dgc takes over the momentum of a rule that has some.
  std::optional<OptimizerConfig> rule;
  if (const auto* const dgc = std::get_if<Dgc>(&compression)) {
    rule = Momentum{.momentum = dgc->momentum, .nesterov = dgc->nesterov};
  }
  // Only what is measured: no push is kept for a server that might die, no snapshot is written but the first.
  return ParameterServerClient::Create(world, rule,
                                       {.consistency = Consistency::kBsp,
                                        .compression = compression,
                                        .values = ParseValues(options.values),
                                        .snapshot_interval = std::chrono::hours(1),
                                        .retain_bytes = 0});
}

// Floats of which sums are exact, or what codecs have to choose from.
void Fill(std::span<float> gradient, int rank, bool exact) {
  if (exact) {
    std::ranges::fill(gradient, static_cast<float>(rank + 1));
    return;
  }
  std::mt19937 random(static_cast<uint32_t>(rank + 1));
  std::normal_distribution<float> normal;
  for (float& value : gradient) value = normal(random);
}

// Each step has added the mean of 1, 2, ..., and this is what all steps together come to.
absl::Status CheckExact(std::span<const float> weights, int workers, double rounds) {
  const float expected = 0.5f * static_cast<float>(workers + 1) * static_cast<float>(rounds);
  if (std::ranges::all_of(weights, [&](float value) { return value == expected; })) return absl::OkStatus();
  return absl::DataLossError("the servers' values are not what was pushed");
}

}  // namespace

absl::Status RunServers(const ServersOptions& options) {
  ASSIGN_OR_RETURN(auto runtime, Runtime::Create());
  Communicator& world = runtime->world();
  ASSIGN_OR_RETURN(auto client, MakeClient(world, options));
  const std::array<int64_t, 2> shape = {1, options.elements};
  std::vector<float> weights(static_cast<size_t>(options.elements));
  ASSIGN_OR_RETURN(const int index, client->Register("weights", weights, shape));
  RETURN_IF_ERROR(client->Start());
  const std::span<float> gradient = client->gradient(index);
  const bool exact = options.compression == "none" && options.values == "f32";
  Fill(gradient, world.rank(), exact);
  const int64_t pulled_at_start = client->pulled_bytes();
  std::vector<double> times(static_cast<size_t>(options.samples));
  constexpr int kWarmUp = 3;
  for (int sample = -kWarmUp; sample < options.samples; ++sample) {
    RETURN_IF_ERROR(world.Barrier());
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(client->PushPull());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (sample >= 0) times[static_cast<size_t>(sample)] = took.count();
  }
  const double rounds = options.samples + kWarmUp;
  if (exact) RETURN_IF_ERROR(CheckExact(weights, world.size(), rounds));
  RETURN_IF_ERROR(world.AllReduce(times, {.op = ReduceOp::kMax}));
  if (world.rank() != 0) return absl::OkStatus();
  const Times summary = Summarize(std::move(times));
  std::printf("# push and pull of %lld floats, %d workers, ms\n", static_cast<long long>(options.elements),
              world.size());
  std::printf("#     min    median       p99\n%9.2f %9.2f %9.2f\n", summary.min, summary.median, summary.p99);
  std::printf("# a worker pushes %.3f MB and pulls %.3f MB a round\n",
              1e-6 * static_cast<double>(client->pushed_bytes()) / rounds,
              1e-6 * static_cast<double>(client->pulled_bytes() - pulled_at_start) / rounds);
  return absl::OkStatus();
}

}  // namespace gyre::bench
