#include "launch/rank_report.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

constexpr size_t kLongestActivity = 32;

bool SetPhase(absl::string_view name, RankReport& report) {
  for (const Phase phase : {Phase::kDownloading, Phase::kProcessing, Phase::kStoring}) {
    if (name == PhaseName(phase)) report.phase = phase;
  }
  return report.phase.has_value();
}

bool SetActivity(absl::string_view word, RankReport& report) {
  report.activity = std::string(word);
  return !word.empty() && IsActivity(report.activity);
}

bool SetCount(absl::string_view text, std::optional<int64_t>& count) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) return false;
  count = value;
  return true;
}

// A loss may be infinite or no number: that is when one wants to know it.
bool SetLoss(absl::string_view text, RankReport& report) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) return false;
  report.loss = value;
  return true;
}

bool SetField(absl::string_view name, absl::string_view value, RankReport& report) {
  if (name == "phase") return SetPhase(value, report);
  if (name == "activity") return SetActivity(value, report);
  if (name == "step") return SetCount(value, report.step);
  if (name == "steps") return SetCount(value, report.steps);
  if (name == "loss") return SetLoss(value, report);
  return true;
}

}  // namespace

bool IsAmount(double value) {
  return std::isfinite(value) && value >= 0;
}

bool IsActivity(std::string_view word) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  return word.size() <= kLongestActivity && std::ranges::all_of(word, allowed);
}

absl::StatusOr<RankReport> ParseRankReport(std::string_view line) {
  const absl::Status malformed = absl::DataLossError("a rank's report is malformed");
  if (line.size() > kLongestReport) return malformed;
  RankReport report{.rank = -1};
  for (const absl::string_view word : absl::StrSplit(ToAbsl(line), ' ', absl::SkipEmpty())) {
    const size_t equals = word.find('=');
    if (equals == absl::string_view::npos) return malformed;
    const absl::string_view value = word.substr(equals + 1);
    if (word.substr(0, equals) == "rank") {
      if (!absl::SimpleAtoi(value, &report.rank)) return malformed;
    } else if (!SetField(word.substr(0, equals), value, report)) {
      return malformed;
    }
  }
  if (report.rank < 0) return malformed;
  return report;
}

}  // namespace gyre::launch
