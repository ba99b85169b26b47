// Compute: stands for the forward and backward passes of a step.
#pragma once

#include <chrono>
#include <string_view>

#include "absl/status/statusor.h"

namespace gyre::bench {

enum class ComputeKind {
  kNone,   // gradients are all ready at once
  kSleep,  // an accelerator's: its clock runs on whatever this thread does, and takes no processor
  kCpu,    // this thread's own: takes as much processor time as it takes, beside whatever else runs
};

absl::StatusOr<ComputeKind> ParseComputeKind(std::string_view name);  // "none", "sleep", "cpu"

class Compute {
 public:
  // `flops_per_second`: of the accelerator, or of a processor that is not shared.
  Compute(ComputeKind kind, double flops_per_second) : kind_(kind), rate_(flops_per_second) {}

  // A step begins.
  void Begin();

  // What comes now cannot have begun before: it needs something that was not there.
  void Resume();

  // Returns when so much more work is done, or all but less than is worth a wait.
  void Advance(double flops);

  // The pass ends: what Advance left is done too.
  void Finish();

 private:
  using Seconds = std::chrono::duration<double>;

  void Burn();  // what is owed
  std::chrono::steady_clock::time_point due() const;

  const ComputeKind kind_;
  const double rate_;
  std::chrono::steady_clock::time_point begin_;
  Seconds asked_{0};  // kSleep: since begin_
  Seconds owed_{0};   // kCpu: processor time
  double value_ = 0;  // kCpu: what is computed
};

}  // namespace gyre::bench
