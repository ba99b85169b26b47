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
  const Seconds more(flops / rate_);
  switch (kind_) {
    case ComputeKind::kNone: return;
    case ComputeKind::kCpu:
      owed_ += more;
      if (owed_ >= kGrain) Burn();
      return;
    case ComputeKind::kSleep:
      asked_ += more;
      if (due() - std::chrono::steady_clock::now() > kGrain) std::this_thread::sleep_until(due());
  }
}

void Compute::Finish() {
  if (kind_ == ComputeKind::kCpu) Burn();
  if (kind_ == ComputeKind::kSleep) std::this_thread::sleep_until(due());
}

std::chrono::steady_clock::time_point Compute::due() const {
  return begin_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(asked_);
}

void Compute::Burn() {
  const Seconds start = ProcessorTime();
  Seconds done(0);
  while (done < owed_) {
    for (int i = 0; i < 1000; ++i) value_ = value_ * 0.999 + 1;
    done = ProcessorTime() - start;
  }
  owed_ -= done;  // the last turn may have been too long: less the next time
}

}  // namespace gyre::bench
