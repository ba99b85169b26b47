// ReadyTimes: when gradients become ready in a step, as the planner needs it. Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace gyre::fusion {

// Record may be called for different tensors at once, before the EndStep of their step; everything else needs the
// object to itself.
class ReadyTimes {
 public:
  explicit ReadyTimes(int tensors) : current_(static_cast<size_t>(tensors)) {}

  // In this step the tensor was ready so many seconds after the step began.
  void Record(int tensor, double seconds) { current_[static_cast<size_t>(tensor)] = seconds; }

  // The step is over. `counts`: its times are kept.
  void EndStep(bool counts) {
    if (counts) steps_.push_back(current_);
  }

  // By tensor: the median of the steps that count; of two in the middle the later one. REQUIRES: there is a step.
  std::vector<double> Median() const;

 private:
  std::vector<double> current_;
  std::vector<std::vector<double>> steps_;
};

}  // namespace gyre::fusion
