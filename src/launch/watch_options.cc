#include "launch/watch_options.h"

#include <algorithm>
#include <cmath>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launch/wrong.h"

namespace gyre::launch {

namespace {

constexpr double kShortestInterval = 0.05;  // seconds: a look at /proc takes about a millisecond

absl::StatusOr<std::chrono::milliseconds> Seconds(const char* option, double seconds, double least) {
  if (seconds >= least && seconds <= 1e9) return std::chrono::milliseconds(std::llround(std::ceil(seconds * 1e3)));
  return absl::InvalidArgumentError(
      absl::StrCat(option, " must be a time of ", least, " s or more; try: ", option, " 60"));
}

// "0,2-4": ascending, each once.
absl::StatusOr<std::vector<int>> ParseRankList(const std::string& text) {
  std::vector<int> ranks;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0;
    int last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first ||
        last >= kMaxJobRanks) {
      return Wrong(absl::StrCat("--ranks-filter ", text, " is no list of ranks"), "--ranks-filter 0,2-3");
    }
    for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

void WatchFlags::Declare(CLI::App& app) {
  app.add_option("--bind-to", bind_to_, "Each rank may use one core, or one NUMA node, alone: core, numa, none (none)")
      ->check(CLI::IsMember(std::vector<std::string>{"core", "numa", "none"}))
      ->type_name("WHAT");
  app.add_option("--map-by", map_by_, "With --bind-to: ranks fill cores and nodes in order, or take NUMA nodes in turn")
      ->check(CLI::IsMember(std::vector<std::string>{"core", "numa"}))
      ->type_name("core|numa");
  app.add_flag("--report-bindings", report_bindings_, "Say where each rank may run");
  app.add_option("--placement", placement_, "Ranks fill hosts in their order, or are spread evenly over them (pack)")
      ->check(CLI::IsMember(std::vector<std::string>{"pack", "spread"}))
      ->type_name("pack|spread");
  app.add_option("--ranks-filter", ranks_filter_, "Pass only these ranks' output on (0,2-3); --output-dir has all")
      ->type_name("RANKS");
  app.add_option("--stack-on-hang", stack_on_hang_,
                 "Print the stacks of all ranks once none has written or reported anything for so long, and at "
                 "--timeout, which then ends the job 5 s later")
      ->type_name("SECONDS");
  app.add_option("--host-cooldown", host_cooldown_,
                 "With --max-restarts: a lost host is left out for so long where the others have slots enough (0)")
      ->type_name("SECONDS");
  app.add_option("--metrics-file", metrics_file_, "Keep the job's state there, as text for Prometheus")
      ->type_name("FILE");
  app.add_option("--trace-usage", trace_usage_, "Write what each rank uses there (CSV); see gyrerun recommend FILE")
      ->type_name("FILE");
  app.add_option("--trace-interval", trace_interval_, "Between two looks for --trace-usage (1)")->type_name("SECONDS");
}

absl::StatusOr<WatchOptions> WatchFlags::Finish() const {
  WatchOptions options;
  options.settings.bind = bind_to_ == "core" ? BindTo::kCore : bind_to_ == "numa" ? BindTo::kNuma : BindTo::kNone;
  options.settings.map = map_by_ == "numa" ? MapBy::kNuma : MapBy::kCore;
  options.settings.report_bindings = report_bindings_;
  options.placement = placement_ == "spread" ? Placement::kSpread : Placement::kPack;
  options.metrics_file = metrics_file_;
  options.trace_usage = trace_usage_;
  if (!trace_usage_.empty()) {
    ASSIGN_OR_RETURN(options.settings.sample, Seconds("--trace-interval", trace_interval_, kShortestInterval));
  }
  if (!ranks_filter_.empty()) {
    ASSIGN_OR_RETURN(options.shown_ranks, ParseRankList(ranks_filter_));
  }
  if (stack_on_hang_ != -1) {
    ASSIGN_OR_RETURN(options.stack_on_hang, Seconds("--stack-on-hang", stack_on_hang_, 0.1));
  }
  ASSIGN_OR_RETURN(options.host_cooldown, Seconds("--host-cooldown", host_cooldown_, 0));
  return options;
}

}  // namespace gyre::launch
