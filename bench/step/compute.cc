#include "step/compute.h"

#include <algorithm>
#include <ctime>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gyre::bench {

namespace {

// Shorter waits are saved up: falling asleep, or reading the processor's clock, would take longer than they.
constexpr std::chrono::duration<double> kGrain = std::chrono::microseconds(50);

std::chrono::duration<double> ProcessorTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

absl::StatusOr<ComputeKind> ParseComputeKind(std::string_view name) {
  if (name == "none") return ComputeKind::kNone;
  if (name == "sleep") return ComputeKind::kSleep;
  if (name == "cpu") return ComputeKind::kCpu;
  return absl::InvalidArgumentError(absl::StrCat("unknown kind of compute '", std::string(name), "'"));
}

void Compute::Begin() {
  begin_ = std::chrono::steady_clock::now();
  asked_ = owed_ = Seconds(0);
}

void Compute::Resume() {
  const auto earliest =
      std::chrono::steady_clock::now() - std::chrono::duration_cast<std::chrono::steady_clock::duration>(asked_);
  begin_ = std::max(begin_, earliest);
}

void Compute::Advance(double flops) {
  if (kind_ == ComputeKind::kNone) return;
  const Seconds more(flops / rate_);
  if (kind_ == ComputeKind::kCpu) return Burn(more);
  asked_ += more;
  const auto due = begin_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(asked_);
  if (due - std::chrono::steady_clock::now() > kGrain) std::this_thread::sleep_until(due);
}

void Compute::Burn(Seconds time) {
  owed_ += time;
  if (owed_ < kGrain) return;
  const Seconds start = ProcessorTime();
  Seconds done(0);
  while (done < owed_) {
    for (int i = 0; i < 1000; ++i) value_ = value_ * 0.999 + 1;
    done = ProcessorTime() - start;
  }
  owed_ -= done;  // the last turn may have been too long: less the next time
}

}  // namespace gyre::bench
