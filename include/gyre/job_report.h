// What a program tells gyrerun of its work: Runtime::Report. It shows in gyrerun's status line, --status-file,
// --metrics-file and --trace-usage (docs/gyrerun.md). Under another launcher, and alone, reports go nowhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gyre {

// The phases of a job that its program is in a position to know; the others are gyrerun's own.
enum class JobPhase : uint8_t { kDownloading, kProcessing, kStoring };

struct JobReport {
  std::optional<JobPhase> phase{};  // rank 0's is the job's
  std::string_view activity{};    // a word of the program's own for what it does from now on, "evaluating": 32 letters,
                                  // digits, '_', '-' or '.' at most; empty: as before
  std::optional<int64_t> step{};  // the last one that is done, 0 or more
  std::optional<int64_t> steps{};  // as many as it will do
  std::optional<double> loss{};
};

}  // namespace gyre
