// gyrerun recommend: what to request for a job, by a trace of what it used (launch/usage_trace.h). Pure but for
// RunRecommend.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/usage_phases.h"

namespace gyre::launch {

inline constexpr double kMiB = 1 << 20;     // bytes
inline constexpr double kDemandMet = 0.95;  // of the processor time that the job used
inline constexpr double kMargin = 0.10;     // on top

// Weighted by time; bytes or processors.
struct UsageSummary {
  double mean = 0;
  double p95 = 0;
  double peak = 0;
};
UsageSummary SummarizeCpus(std::span<const UsageSample> samples);
UsageSummary SummarizeMemory(std::span<const UsageSample> samples);

// The GPUs of a worker: one for each of its ranks that used any, and what such a rank had of their memory at most.
struct GpuNeed {
  int gpus = 0;
  double memory = 0;  // bytes
};
// Of the worker that needs most, with `ranks_per_worker` ranks each.
GpuNeed GpusOf(std::span<const UsageRow> rows, int ranks_per_worker);

struct Recommendation {
  double cpus = 0;    // in tenths
  double met = 0;     // how much of the processor time it would have given, 0 to 1
  double memory = 0;  // bytes, whole MiB
  GpuNeed gpu{};      // memory: of each GPU, whole MiB
  std::string size;   // the first of k8s/sizes.yaml that has all of it; empty: none has
};
// For a worker. `workers`: what each of them used. Processors: as few as would have given 95 % of all that was used,
// and the margin: what exceeds a request now and then is only slower. Memory: the peak and the margin, for whoever
// exceeds that is killed; of GPUs' memory likewise. REQUIRES: at least one sample.
Recommendation Recommend(const std::vector<std::vector<UsageSample>>& workers, const GpuNeed& gpu = {});

// Processors and memory over time with the phases behind, and the request for all workers together.
std::string UsagePlot(const std::vector<UsagePhase>& phases, double requested_cpus, double requested_memory);

// `gyrerun recommend FILE ...`: what it prints. kInvalidArgument as ParseOptions; kUnavailable where the plot cannot be
// written.
absl::StatusOr<std::string> RunRecommend(const std::vector<std::string>& arguments);

}  // namespace gyre::launch
