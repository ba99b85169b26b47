// StrategyConfig: how gradients become weights, as GYRE_STRATEGY says it:
//   allreduce | ps[,consistency=bsp|ssp|async][,staleness=N][,local_steps=N][,values=f32|f16|bf16|int8][,replicas=0|1]
// gyrerun adds for its ranks servers=HOST:PORT+HOST:PORT, where the parameter servers are, and life=N, how often the
// process was started. What is said twice counts as it was said last.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "gyre/options.h"

namespace gyre {

// What local_steps may be: in BSP a server holds the pushes of a worker's steps that are still to be made by all, and
// must have room for the step that all make besides those that it made alone.
inline constexpr int64_t kMostLocalSteps = 255;

struct StrategyConfig {
  Strategy strategy = Strategy::kAllreduce;
  std::optional<Consistency> consistency{};
  std::optional<int64_t> staleness{};
  std::optional<int64_t> local_steps{};  // at most kMostLocalSteps
  std::optional<ValueFormat> values{};
  std::optional<int64_t> replicas{};   // 0 or 1
  std::vector<std::string> servers{};  // "host:port" by number
  uint64_t life = 1;                   // more: this process takes the place of one that died
};

// Empty text is allreduce. kInvalidArgument quotes the part that is not understood.
absl::StatusOr<StrategyConfig> ParseStrategy(std::string_view text);

}  // namespace gyre
