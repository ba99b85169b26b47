#include "fusion/ready_times.h"

#include <algorithm>
#include <cstdint>

namespace gyre::fusion {

std::vector<double> ReadyTimes::Median() const {
  std::vector<double> medians, samples(steps_.size());
  const auto middle = samples.begin() + static_cast<int64_t>(samples.size() / 2);
  for (size_t tensor = 0; tensor < current_.size(); ++tensor) {
    std::ranges::transform(steps_, samples.begin(), [tensor](const auto& step) { return step[tensor]; });
    std::nth_element(samples.begin(), middle, samples.end());
    medians.push_back(*middle);
  }
  return medians;
}

}  // namespace gyre::fusion
