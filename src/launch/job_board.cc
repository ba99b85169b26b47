#include "launch/job_board.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace gyre::launch {

namespace {

constexpr int64_t kBehind = 2;  // steps: one is what ranks in step differ by
constexpr Duration kSilent = std::chrono::seconds(1);

void Gauge(std::string& text, std::string_view name, std::string_view help) {
  absl::StrAppend(&text, "# HELP gyre_job_", ToAbsl(name), " ", ToAbsl(help), "\n# TYPE gyre_job_", ToAbsl(name),
                  " gauge\n");
}

// As Prometheus writes numbers that are none.
std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return absl::StrFormat("%.9g", value);
}

}  // namespace

void JobBoard::OnStarted() {
  for (Rank& rank : ranks_) rank = {.up = true};
}

void JobBoard::OnReport(const RankReport& report, TimePoint now) {
  if (report.rank < 0 || static_cast<size_t>(report.rank) >= ranks_.size()) return;
  Rank& rank = ranks_[static_cast<size_t>(report.rank)];
  rank.heard = now;
  if (!report.activity.empty()) rank.activity = report.activity;
  if (report.step) rank.step = report.step;
  if (report.steps) rank.steps = report.steps;
  if (report.loss) rank.loss = report.loss;
}

void JobBoard::OnRankEnded(int rank) {
  ranks_[static_cast<size_t>(rank)].up = false;
}

size_t JobBoard::up() const {
  return static_cast<size_t>(std::ranges::count_if(ranks_, &Rank::up));
}

const JobBoard::Rank* JobBoard::First() const {
  const Rank* first = nullptr;
  for (const Rank& rank : ranks_) {
    if (rank.step && (first == nullptr || *rank.step > *first->step)) first = &rank;
  }
  return first;
}

const JobBoard::Rank* JobBoard::Last() const {
  const Rank* last = nullptr;
  for (const Rank& rank : ranks_) {
    if (rank.step && (last == nullptr || *rank.step < *last->step)) last = &rank;
  }
  return last;
}

const JobBoard::Rank* JobBoard::Late(TimePoint now) const {
  const Rank* last = Last();
  if (last == nullptr || *First()->step - *last->step < kBehind || now - last->heard < kSilent) return nullptr;
  return last;
}

std::optional<double> JobBoard::Loss() const {
  const auto says = std::ranges::find_if(ranks_, [](const Rank& rank) { return rank.loss.has_value(); });
  return says == ranks_.end() ? std::nullopt : says->loss;
}

std::string JobBoard::StatusLine(TimePoint now) const {
  std::string line = absl::StrCat(up(), " of ", ranks_.size(), ranks_.size() == 1 ? " rank up" : " ranks up");
  if (!ranks_.empty() && !ranks_[0].activity.empty()) absl::StrAppend(&line, ", ", ranks_[0].activity);
  if (const Rank* first = First()) {
    absl::StrAppend(&line, ", step ", *first->step);
    if (first->steps) absl::StrAppend(&line, " of ", *first->steps);
  }
  if (const auto loss = Loss()) absl::StrAppendFormat(&line, ", loss %.4g", *loss);
  if (const Rank* late = Late(now)) {
    absl::StrAppend(&line, ", late: rank ", late - ranks_.data(), " (step ", *late->step, ")");
  }
  return line;
}

std::string JobBoard::Metrics() const {
  std::string text;
  Gauge(text, "phase", "1 for the phase that the job is in.");
  for (int i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    absl::StrAppend(&text, "gyre_job_phase{job=\"", job_, "\",phase=\"", PhaseName(phase), "\"} ",
                    phase == phase_ ? 1 : 0, "\n");
  }
  const std::string labels = absl::StrCat("{job=\"", job_, "\"} ");
  const auto simple = [&](std::string_view name, std::string_view help, const std::string& value) {
    Gauge(text, name, help);
    absl::StrAppend(&text, "gyre_job_", ToAbsl(name), labels, value, "\n");
  };
  simple("ranks", "Ranks of the job.", absl::StrCat(ranks_.size()));
  simple("ranks_up", "Ranks that run.", absl::StrCat(up()));
  simple("restarts", "How often the job was started again.", absl::StrCat(epoch_));
  if (const Rank* first = First()) {
    Gauge(text, "step", "Steps that the first and the last rank have done.");
    absl::StrAppend(&text, "gyre_job_step{job=\"", job_, "\",rank=\"first\"} ", *first->step, "\n");
    absl::StrAppend(&text, "gyre_job_step{job=\"", job_, "\",rank=\"last\"} ", *Last()->step, "\n");
    if (first->steps) simple("steps", "Steps that the job will do.", absl::StrCat(*first->steps));
  }
  if (const auto loss = Loss()) simple("loss", "The loss that was reported last.", Number(*loss));
  if (exit_code_) simple("exit_code", "gyrerun's exit code.", absl::StrCat(*exit_code_));
  return text;
}

}  // namespace gyre::launch
