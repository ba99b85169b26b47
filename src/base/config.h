// Config: the one place that reads GYRE_* variables. What RuntimeOptions sets wins over them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/environment.h"
#include "base/strategy.h"
#include "gyre/options.h"

namespace gyre {

inline constexpr int kMaxJobRanks = 1'000'000;

// Immutable once loaded. The meaning of each field is at RuntimeOptions (gyre/options.h).
struct Config {
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<std::string> store;
  std::optional<std::string> job_id;
  std::optional<int64_t> epoch;
  std::optional<std::string> secret;
  std::optional<std::string> secret_file;
  std::optional<int> secret_fd;  // GYRE_SECRET_FD: descriptors that gyrerun's ranks inherit, "7,8": that of the secret,
                                 // and that of the socket for reports (may be missing); only with GYRE_RANK
  std::optional<int> report_fd;
  std::optional<std::string> host_id;
  std::optional<std::string> interface;
  bool checksum_data = false;
  std::string algorithms;
  std::optional<Backend> backend;
  int streams = 1;
  StrategyConfig strategy;  // GYRE_STRATEGY
  std::chrono::milliseconds start_timeout{60'000};
  std::chrono::milliseconds operation_timeout{300'000};
  std::chrono::milliseconds heartbeat_interval{100};
  std::chrono::milliseconds heartbeat_timeout{1'000};
  int64_t arena_bytes = 0;              // 0: the default
  std::optional<int64_t> fusion_bytes;  // GYRE_FUSION_BYTES: where ReducerOptions::bucket_bytes is unset
  std::string compression;              // GYRE_COMPRESSION: where ReducerOptions::compression is unset
  std::optional<bool> spin;
  std::optional<std::string> timeline;  // GYRE_TIMELINE: a path; rank R writes its timeline to PATH.R
  std::optional<int> metrics_port;      // GYRE_METRICS_PORT: counters over HTTP, on this port plus the local rank
  LogLevel log_level = LogLevel::kWarning;
};

// Of what gyrerun sets, all six variables are taken or none: none where code gives rank or size, or GYRE_RANK is
// unset. kInvalidArgument names the variable or option, its value, and what is accepted.
absl::StatusOr<Config> LoadConfig(const RuntimeOptions& options, const Environment& environment);

}  // namespace gyre
