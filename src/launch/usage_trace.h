// The trace of what a job's ranks use: --trace-usage writes it, gyrerun recommend reads it. CSV, a row for each rank
// and look:
//
//   seconds,interval,rank,cpus,memory_bytes,activity,gpus,gpu_memory_bytes
//
// `seconds`: since the start, when the look was taken; `interval`: the time since the one before; `cpus`: the
// processors that the rank, with all that it has started, used on average in that time; `memory_bytes`: what it has at
// its end; `activity`: what it said that it did in that time, or nothing; `gpus`, `gpu_memory_bytes`: the GPUs that
// were busy for it at its end (0.5: half of one), and what it had of their memory, or nothing where that is not known.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "launch/rank_report.h"

namespace gyre::launch {

struct UsageRow {
  double seconds = 0;
  double interval = 0;
  int rank = 0;
  double cpus = 0;
  double memory = 0;  // bytes
  std::string activity{};
  double gpus = 0;        // 0 where it is not known
  double gpu_memory = 0;  // bytes, likewise
};

// kInvalidArgument: the file cannot be read, or says in which line what is wrong.
absl::StatusOr<std::vector<UsageRow>> ReadUsageTrace(const std::string& path);
absl::StatusOr<std::vector<UsageRow>> ParseUsageTrace(std::string_view text, std::string_view file);

// Not thread-safe.
class UsageTrace {
 public:
  // Replaces what is there.
  static absl::StatusOr<UsageTrace> Open(const std::string& path, int ranks);

  // The ranks start, at `now` of the first time; a later start goes on with the same clock.
  void Begin(TimePoint now);
  // An error is that of the file, once; nothing is written after it.
  absl::Status Add(TimePoint when, const RankUsage& usage, const std::string& activity);

 private:
  struct Before {
    bool known = false;
    TimePoint when{};
    double cpu_seconds = 0;
  };

  UsageTrace(std::string path, UniqueFd fd, int ranks)
      : path_(std::move(path)), fd_(std::move(fd)), before_(static_cast<size_t>(ranks)) {}

  std::string path_;
  UniqueFd fd_;
  std::vector<Before> before_;
  TimePoint start_{};
  bool begun_ = false;
};

}  // namespace gyre::launch
