// gyre-bench ps --rows: pulling the rows of a table that a step needs from the job's parameter servers, and pushing
// their gradients.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "commands.h"
#include "gyre/gyre.h"
#include "gyre/status_macros.h"
#include "timing.h"

namespace gyre::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWatched = 1000;  // rows, from 0, that are counted: the most frequent ones

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Row i as often as 1 / (i + 1), about: as words are, by their frequency (Zipf).
std::vector<int64_t> Draw(const ServerRowsOptions& options, std::mt19937_64& random) {
  std::uniform_real_distribution<double> exponent(0, std::log(static_cast<double>(options.rows) + 1));
  std::vector<int64_t> ids(static_cast<size_t>(options.batch));
  for (int64_t& id : ids) {
    id = std::clamp<int64_t>(static_cast<int64_t>(std::exp(exponent(random))) - 1, 0, options.rows - 1);
  }
  return ids;
}

size_t CountUnique(std::vector<int64_t> ids) {
  std::ranges::sort(ids);
  return ids.size() - std::ranges::unique(ids).size();
}

void PrintRowTimes(const char* what, std::vector<double> times, double rows) {
  const Times summary = Summarize(std::move(times));
  std::printf("%-10s%9.2f %9.2f %9.2f %14.0f\n", what, summary.min, summary.median, summary.p99,
              rows / summary.median * 1000);
}

// Each time that a row was needed has added 1 to it, over all workers and steps.
absl::Status Check(Communicator& world, ParameterServerClient& client, int table, const ServerRowsOptions& options,
                   std::vector<double> counts) {
  RETURN_IF_ERROR(world.AllReduce(counts, {.op = ReduceOp::kSum}));
  std::vector<int64_t> ids(counts.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  const auto columns = static_cast<size_t>(options.columns);
  std::vector<float> values(ids.size() * columns);
  RETURN_IF_ERROR(client.PullRows(table, ids, values));
  for (size_t i = 0; i < values.size(); ++i) {
    const double count = counts[i / columns];              // but for the rounding of a mean, and of float32
    if (!(std::abs(values[i] - count) <= 1e-5 * count)) {  // not a number neither
      return absl::DataLossError("the servers' rows are not what was pushed");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunServerRows(const ServerRowsOptions& options) {
  constexpr int64_t kMostFloats = int64_t{1} << 30;
  if (options.batch > kMostFloats / options.columns) {
    return absl::InvalidArgumentError(absl::StrCat("--batch ", options.batch, " rows of --columns ", options.columns,
                                                   " are more than ", kMostFloats, " floats"));
  }
  ASSIGN_OR_RETURN(auto runtime, Runtime::Create());
  Communicator& world = runtime->world();
  // Only what is measured: no push is kept for a server that might die, no snapshot is written but the first.
  ASSIGN_OR_RETURN(auto client, ParameterServerClient::Create(world, std::nullopt,
                                                              {.consistency = Consistency::kBsp,
                                                               .snapshot_interval = std::chrono::hours(1),
                                                               .retain_bytes = 0}));
  ASSIGN_OR_RETURN(const int table, client->RegisterTable("rows", options.rows, options.columns));
  RETURN_IF_ERROR(client->Start());
  std::mt19937_64 random(static_cast<uint64_t>(world.rank()) + 1);
  // Servers take the mean.
  const std::vector<float> gradients(static_cast<size_t>(options.batch * options.columns),
                                     static_cast<float>(world.size()));
  std::vector<float> values(gradients.size());
  constexpr int64_t kCheckedFloats = int64_t{8} << 20;  // half of what may be pulled at once
  std::vector<double> counts(static_cast<size_t>(std::min({kWatched, options.rows, kCheckedFloats / options.columns})));
  std::vector<double> pulls(static_cast<size_t>(options.samples)), pushes(pulls.size());
  double unique = 0;
  int64_t bytes = 0;
  const auto moved = [&] { return client->pushed_bytes() + client->pulled_bytes(); };
  constexpr int kWarmUp = 3;
  for (int sample = -kWarmUp; sample < options.samples; ++sample) {
    if (sample == 0) bytes = -moved();
    const std::vector<int64_t> ids = Draw(options, random);
    for (const int64_t id : ids) {
      if (id < std::ssize(counts)) ++counts[static_cast<size_t>(id)];
    }
    RETURN_IF_ERROR(world.Barrier());
    const auto start = Clock::now();
    RETURN_IF_ERROR(client->PullRows(table, ids, values));
    const double pulled = MillisecondsSince(start);
    RETURN_IF_ERROR(world.Barrier());
    const auto middle = Clock::now();
    RETURN_IF_ERROR(client->PushRows(table, ids, gradients));
    RETURN_IF_ERROR(client->PushPull());
    if (sample < 0) continue;
    pushes[static_cast<size_t>(sample)] = MillisecondsSince(middle);
    pulls[static_cast<size_t>(sample)] = pulled;
    unique += static_cast<double>(CountUnique(ids)) / options.samples;
  }
  bytes += moved();
  RETURN_IF_ERROR(Check(world, *client, table, options, std::move(counts)));
  RETURN_IF_ERROR(world.AllReduce(pulls, {.op = ReduceOp::kMax}));
  RETURN_IF_ERROR(world.AllReduce(pushes, {.op = ReduceOp::kMax}));
  if (world.rank() != 0) return absl::OkStatus();
  const double row = static_cast<double>(options.columns) * sizeof(float);
  std::printf("# %lld rows of %lld floats, of which a worker needs %lld a step, %.0f different ones; %d workers, ms\n",
              static_cast<long long>(options.rows), static_cast<long long>(options.columns),
              static_cast<long long>(options.batch), unique, world.size());
  std::printf("# a worker pushes and pulls %.3f MB a step, of the whole table it would be %.3f MB\n",
              1e-6 * static_cast<double>(bytes) / options.samples, 2e-6 * row * static_cast<double>(options.rows));
  std::printf("#               min    median       p99   rows/s of all\n");
  const double rows = static_cast<double>(options.batch) * world.size();
  PrintRowTimes("pull", std::move(pulls), rows);
  PrintRowTimes("push", std::move(pushes), rows);
  return absl::OkStatus();
}

}  // namespace gyre::bench
