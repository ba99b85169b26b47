#include "base/strategy.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace gyre {

namespace {

bool ParseCount(absl::string_view text, int64_t least, std::optional<int64_t>& field, int64_t most = INT64_MAX) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least || value > most) return false;
  field = value;
  return true;
}

bool ParseConsistency(absl::string_view text, std::optional<Consistency>& field) {
  if (text == "bsp") field = Consistency::kBsp;
  if (text == "ssp") field = Consistency::kSsp;
  if (text == "async") field = Consistency::kAsync;
  return text == "bsp" || text == "ssp" || text == "async";
}

bool ParseValues(absl::string_view text, std::optional<ValueFormat>& field) {
  constexpr absl::string_view kNames[] = {"f32", "f16", "bf16", "int8"};  // in the order of ValueFormat
  const auto* const name = std::ranges::find(kNames, text);
  if (name != std::end(kNames)) field = static_cast<ValueFormat>(name - std::begin(kNames));
  return name != std::end(kNames);
}

bool ParsePart(absl::string_view key, absl::string_view value, StrategyConfig& config) {
  if (key == "consistency") return ParseConsistency(value, config.consistency);
  if (key == "staleness") return ParseCount(value, 0, config.staleness);
  if (key == "local_steps") return ParseCount(value, 0, config.local_steps, kMostLocalSteps);
  if (key == "values") return ParseValues(value, config.values);
  if (key == "replicas") return ParseCount(value, 0, config.replicas, 1);
  if (key == "servers") {
    config.servers = absl::StrSplit(value, '+');
    return !value.empty();
  }
  std::optional<int64_t> life;
  if (key != "life" || !ParseCount(value, 1, life)) return false;
  config.life = static_cast<uint64_t>(*life);
  return true;
}

}  // namespace

absl::StatusOr<StrategyConfig> ParseStrategy(std::string_view text) {
  StrategyConfig config;
  if (text.empty()) return config;
  bool first = true;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(text), ',')) {
    const std::pair<absl::string_view, absl::string_view> entry = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const bool named = part == "allreduce" || part == "ps";
    if (first && named) config.strategy = part == "ps" ? Strategy::kParameterServer : Strategy::kAllreduce;
    if (first ? !named : !ParsePart(entry.first, entry.second, config)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "GYRE_STRATEGY: '", part, "' is not understood; it is allreduce, or ps with consistency=bsp, ssp or async, ",
          "staleness=N, local_steps=N (up to ", kMostLocalSteps,
          "), values=f32, f16, bf16 or int8, replicas=0 or 1, all with commas between them"));
    }
    first = false;
  }
  return config;
}

}  // namespace gyre
