// The part of gyrerun's command line that says where ranks run on a host and how the job is watched.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/hosts.h"
#include "launch/rank_watch.h"

namespace CLI {
class App;
}

namespace gyre::launch {

struct WatchOptions {
  WatchSettings settings{};
  Placement placement = Placement::kPack;
  std::vector<int> shown_ranks{};  // whose output gyrerun passes on, ascending; empty: all
  std::optional<std::chrono::milliseconds> stack_on_hang{};
  std::chrono::milliseconds host_cooldown{0};
  std::string metrics_file{};  // empty: none
  std::string trace_usage{};   // likewise
};

// What is given as text. Declares its options, and then makes WatchOptions of them.
class WatchFlags {
 public:
  void Declare(CLI::App& app);
  // kInvalidArgument as ParseOptions.
  absl::StatusOr<WatchOptions> Finish() const;

 private:
  std::string bind_to_ = "none";
  std::string map_by_ = "core";
  std::string placement_ = "pack";
  std::string ranks_filter_;
  double stack_on_hang_ = -1;
  double host_cooldown_ = 0;
  double trace_interval_ = 1;
  bool report_bindings_ = false;
  std::string metrics_file_;
  std::string trace_usage_;
};

}  // namespace gyre::launch
