#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"

namespace char_lm {

namespace {

constexpr auto kBarInterval = std::chrono::milliseconds(100);
constexpr auto kLineInterval = std::chrono::seconds(2);
constexpr int kBarWidth = 24;

std::string Bar(int64_t step, int64_t total) {
  const auto filled = static_cast<size_t>(kBarWidth * step / std::max<int64_t>(total, 1));
  return std::string(filled, '#') + std::string(kBarWidth - std::min<size_t>(filled, kBarWidth), '.');
}

std::string Remaining(double seconds) {
  const int64_t whole = std::llround(seconds);
  return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(bool enabled, int64_t total_steps, int64_t batch)
    : enabled_(enabled), terminal_(isatty(STDOUT_FILENO) == 1), total_steps_(total_steps), batch_(batch) {}

void Progress::Step(int64_t step, double loss, const StepTimes& times) {
  if (!enabled_) return;
  loss_sum_ += loss;
  ++loss_count_;
  const auto now = Clock::now();
  const Clock::duration interval = terminal_ ? Clock::duration(kBarInterval) : Clock::duration(kLineInterval);
  if (now - shown_ < interval && step != total_steps_) return;
  const double speed = times.steps_per_second();
  const std::string line = absl::StrFormat("step %d/%d  loss %.3f  %.0f chars/s  communication %.0f%%  ETA %s", step,
                                           total_steps_, loss_sum_ / static_cast<double>(loss_count_),
                                           speed * static_cast<double>(batch_), 100 * times.communication_fraction(),
                                           Remaining(static_cast<double>(total_steps_ - step) / std::max(speed, 1e-9)));
  if (terminal_) {
    std::printf("\r[%s] %s\033[K", Bar(step, total_steps_).c_str(), line.c_str());
  } else {
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
  line_open_ = terminal_;
  shown_ = now;
  loss_sum_ = 0;
  loss_count_ = 0;
}

void Progress::EndLine() {
  if (line_open_) std::printf("\n");
  line_open_ = false;
}

}  // namespace char_lm
