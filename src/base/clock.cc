#include "base/clock.h"

#include <algorithm>

namespace gyre {

int PollMilliseconds(TimePoint now, TimePoint deadline, int cap) {
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<int64_t>(left, cap));
}

}  // namespace gyre
