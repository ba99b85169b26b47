// What a rank says of its work (gyre/job_report.h), and of what it uses, as gyrerun knows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "launch/gpus.h"
#include "launch/status_file.h"

namespace gyre::launch {

inline constexpr size_t kLongestReport = 256;  // bytes of a line

// A word that an activity may be: at most 32 letters, digits, '_', '-' and '.'.
bool IsActivity(std::string_view word);

// A number that a use of processors or memory may be: 0 or more.
bool IsAmount(double value);

// What is not there did not change.
struct RankReport {
  int rank = 0;
  std::optional<Phase> phase{};  // kDownloading, kProcessing or kStoring
  std::string activity{};
  std::optional<int64_t> step{};
  std::optional<int64_t> steps{};
  std::optional<double> loss{};
};

// The line of src/runtime/reporter.h; words that it does not know are passed over. kDataLoss: it is none. Pure.
absl::StatusOr<RankReport> ParseRankReport(std::string_view line);

// What a rank, with all that it has started, uses at a moment.
struct RankUsage {
  int rank = 0;
  double cpu_seconds = 0;         // since its start, what has ended included
  uint64_t memory = 0;            // bytes, resident; of what is shared its share
  std::optional<GpuUsage> gpu{};  // where that is known
};

}  // namespace gyre::launch
