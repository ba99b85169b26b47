#include "launch/recommend.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "launch/report.h"
#include "launch/sizes.h"
#include "launch/whole_file.h"

namespace gyre::launch {

namespace {

constexpr double kGiB = 1 << 30;
constexpr double kTenth = 0.1;  // the smallest request of processors
constexpr double kPercentile = 0.95;

template <typename Value>
UsageSummary Summarize(std::span<const UsageSample> samples, const Value& value) {
  std::vector<std::pair<double, double>> weighted;  // value, seconds
  double seconds = 0;
  UsageSummary summary;
  for (const UsageSample& sample : samples) {
    weighted.emplace_back(value(sample), sample.seconds());
    seconds += sample.seconds();
    summary.mean += value(sample) * sample.seconds();
    summary.peak = std::max(summary.peak, value(sample));
  }
  if (seconds <= 0) return summary;
  summary.mean /= seconds;
  std::ranges::sort(weighted);
  double below = 0;
  for (const auto& [amount, duration] : weighted) {
    summary.p95 = amount;
    below += duration;
    if (below >= kPercentile * seconds * (1 - 1e-9)) break;
  }
  return summary;
}

// The share of the processor time used that a request of so many would have given.
double Met(const std::vector<std::vector<UsageSample>>& workers, double cpus) {
  double used = 0;
  double given = 0;
  for (const auto& samples : workers) {
    for (const UsageSample& sample : samples) {
      used += sample.cpus * sample.seconds();
      given += std::min(sample.cpus, cpus) * sample.seconds();
    }
  }
  return used > 0 ? given / used : 1;
}

double RoundedUp(double value, double unit) {
  return std::ceil(value / unit - 1e-9) * unit;
}

// The smallest number of processors, in tenths, that meets the demand.
double Needed(const std::vector<std::vector<UsageSample>>& workers) {
  double most = kTenth;
  for (const auto& samples : workers) most = std::max(most, SummarizeCpus(samples).peak);
  int64_t low = 1;
  int64_t high = std::llround(RoundedUp(most, kTenth) / kTenth);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (Met(workers, static_cast<double>(middle) * kTenth) >= kDemandMet) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return static_cast<double>(low) * kTenth;
}

std::string SizeFor(const Recommendation& request) {
  for (const Size& size : Sizes()) {
    if (size.per_gpu != (request.gpu.gpus > 0) || size.gpu_memory * kGiB < request.gpu.memory) continue;
    const int times = size.per_gpu ? request.gpu.gpus : 1;
    if (size.cpu * times >= request.cpus && size.memory * times * kGiB >= request.memory) return size.name;
  }
  return "";
}

std::string PhaseTable(const std::vector<UsagePhase>& phases) {
  std::string text =
      absl::StrFormat("%9s %9s  %-16s %24s %30s\n%9s %9s  %-16s %8s%8s%8s %10s%10s%10s\n", "", "", "", "CPUs",
                      "memory, MiB", "from, s", "to, s", "activity", "mean", "p95", "peak", "mean", "p95", "peak");
  for (const UsagePhase& phase : phases) {
    const UsageSummary cpu = SummarizeCpus(phase.samples);
    const UsageSummary memory = SummarizeMemory(phase.samples);
    absl::StrAppendFormat(&text, "%9.2f %9.2f  %-16s %8.2f%8.2f%8.2f %10.1f%10.1f%10.1f\n", phase.begin, phase.end,
                          phase.activity.empty() ? "-" : phase.activity, cpu.mean, cpu.p95, cpu.peak,
                          memory.mean / kMiB, memory.p95 / kMiB, memory.peak / kMiB);
  }
  return text;
}

// Of a job that used any.
std::string GpuTable(const std::vector<UsagePhase>& phases) {
  const auto uses = [](const UsageSample& sample) { return sample.gpus > 0 || sample.gpu_memory > 0; };
  const auto phase_uses = [&](const UsagePhase& phase) { return std::ranges::any_of(phase.samples, uses); };
  if (std::ranges::none_of(phases, phase_uses)) return "";
  std::string text =
      absl::StrFormat("%37s %24s %30s\n%9s %9s  %-16s %8s%8s%8s %10s%10s%10s\n", "", "GPUs", "GPU memory, MiB",
                      "from, s", "to, s", "activity", "mean", "p95", "peak", "mean", "p95", "peak");
  for (const UsagePhase& phase : phases) {
    const UsageSummary gpu = Summarize(phase.samples, [](const UsageSample& sample) { return sample.gpus; });
    const UsageSummary memory = Summarize(phase.samples, [](const UsageSample& sample) { return sample.gpu_memory; });
    absl::StrAppendFormat(&text, "%9.2f %9.2f  %-16s %8.2f%8.2f%8.2f %10.1f%10.1f%10.1f\n", phase.begin, phase.end,
                          phase.activity.empty() ? "-" : phase.activity, gpu.mean, gpu.p95, gpu.peak,
                          memory.mean / kMiB, memory.p95 / kMiB, memory.peak / kMiB);
  }
  return text;
}

std::string RequestText(const Recommendation& request, int ranks_per_worker) {
  std::string text = absl::StrFormat(
      "requests for a worker of %d rank%s:\n"
      "  cpu: %.1f (as few as give 95 %% of the processor time used, and 10 %% on top; gives %.1f %%)\n"
      "  memory: %.0fMi (the peak, and 10 %% on top)\n",
      ranks_per_worker, ranks_per_worker == 1 ? "" : "s", request.cpus, 100 * request.met, request.memory / kMiB);
  std::string gpus;
  if (request.gpu.gpus > 0) {
    absl::StrAppendFormat(&text,
                          "  gpu: %d (one for each rank that used any), of %.0fMi each (the peak, and 10 %% on top)\n",
                          request.gpu.gpus, request.gpu.memory / kMiB);
    gpus = absl::StrCat(" --gpus ", request.gpu.gpus);
  }
  if (request.size.empty()) {
    return absl::StrCat(text, "no size of k8s/sizes.yaml has as much; try: --ranks-per-worker with less\n");
  }
  return absl::StrCat(text, "nearest size: ", request.size, "; try: gyrerun manifest --size ", request.size, gpus,
                      "\n");
}

struct RecommendOptions {
  std::string trace;
  int ranks_per_worker = 0;  // 0: all
  std::string plot;
};

absl::StatusOr<std::string> RenderRecommendation(const RecommendOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<UsageRow> rows, ReadUsageTrace(options.trace));
  const int ranks = std::ranges::max(rows, {}, &UsageRow::rank).rank + 1;
  const int each = options.ranks_per_worker > 0 ? std::min(options.ranks_per_worker, ranks) : ranks;
  std::vector<std::vector<UsageSample>> workers;
  for (int first = 0; first < ranks; first += each) {
    workers.push_back(SumOfRanks(rows, first, std::min(ranks, first + each)));
  }
  const std::vector<UsageSample> all = SumOfRanks(rows, 0, ranks);
  if (all.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("recommend: ", OneLine(options.trace),
                                                   ": every row is about a time that began before the job's start; "
                                                   "try: a longer run, or a shorter --trace-interval"));
  }
  const std::vector<UsagePhase> phases = FindPhases(all);
  const Recommendation request = Recommend(workers, GpusOf(rows, each));
  if (!options.plot.empty()) {
    const auto count = static_cast<double>(workers.size());
    RETURN_IF_ERROR(
        Annotate(WriteWholeFile(options.plot, UsagePlot(phases, request.cpus * count, request.memory * count)),
                 "recommend --plot"));
  }
  return absl::StrFormat("%d ranks, %.1f s, %d looks, %d phases (all ranks together)\n", ranks,
                         all.back().end - all.front().begin, all.size(), phases.size()) +
         PhaseTable(phases) + GpuTable(phases) + RequestText(request, each);
}

}  // namespace

GpuNeed GpusOf(std::span<const UsageRow> rows, int ranks_per_worker) {
  std::map<int, std::set<int>> using_them;  // of each worker
  GpuNeed need;
  for (const UsageRow& row : rows) {
    if (row.gpus == 0 && row.gpu_memory == 0) continue;
    std::set<int>& ranks = using_them[row.rank / ranks_per_worker];
    ranks.insert(row.rank);
    need.gpus = std::max(need.gpus, static_cast<int>(ranks.size()));
    need.memory = std::max(need.memory, row.gpu_memory);
  }
  return need;
}

UsageSummary SummarizeCpus(std::span<const UsageSample> samples) {
  return Summarize(samples, [](const UsageSample& sample) { return sample.cpus; });
}

UsageSummary SummarizeMemory(std::span<const UsageSample> samples) {
  return Summarize(samples, [](const UsageSample& sample) { return sample.memory; });
}

Recommendation Recommend(const std::vector<std::vector<UsageSample>>& workers, const GpuNeed& gpu) {
  Recommendation request;
  request.cpus = RoundedUp(Needed(workers) * (1 + kMargin), kTenth);
  request.met = Met(workers, request.cpus);
  for (const auto& samples : workers) request.memory = std::max(request.memory, SummarizeMemory(samples).peak);
  request.memory = RoundedUp(request.memory * (1 + kMargin), kMiB);
  request.gpu = {gpu.gpus, RoundedUp(gpu.memory * (1 + kMargin), kMiB)};
  request.size = SizeFor(request);
  return request;
}

absl::StatusOr<std::string> RunRecommend(const std::vector<std::string>& arguments) {
  RecommendOptions options;
  CLI::App app("gyrerun recommend says what a job used, phase by phase, and what to request for it.",
               "gyrerun recommend");
  app.add_option("FILE", options.trace, "What gyrerun --trace-usage wrote")->required();
  app.add_option("--ranks-per-worker", options.ranks_per_worker, "Ranks that share a worker (all)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  app.add_option("--plot", options.plot, "Draw it there, as SVG")->type_name("FILE");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat("recommend: ", error.what(), "; try: gyrerun recommend --help"));
  }
  return RenderRecommendation(options);
}

}  // namespace gyre::launch
