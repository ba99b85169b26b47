// HostClock: when something was on another host, told by that host's steady clock, which began to count who knows when
// and is read by nobody here. Pure; not thread-safe.
//
// A message that says when it was sent arrives some time later: arrival here minus sending there is how far the clocks
// are apart, plus the delay. So the smallest such difference is the best one (Cristian's algorithm), and off by the
// smallest delay: times of hosts that are equally far away compare as if one clock had told them.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace gyre::launch {

class HostClock {
 public:
  // A message that was sent at `there` has arrived at `now`. Returns when that was here: never after `now`. `there` may
  // be anything from 0 to 2^62 ns.
  TimePoint OnHeard(TimePoint there, TimePoint now) {
    if (now - window_start_ >= kWindow) {
      before_ = in_window_;
      in_window_ = Duration::max();
      window_start_ = now;
    }
    in_window_ = std::min<Duration>(in_window_, now - there);
    last_ = there;
    return last();
  }

  // When the last message was sent that has arrived: until then the host lived. REQUIRES: one has.
  TimePoint last() const { return last_ + std::min(before_, in_window_); }

 private:
  // Clocks drift apart, by up to 0.1 ms a second: what was the smallest difference an hour ago may not be true any
  // more. The minimum is over the last one to two windows.
  static constexpr Duration kWindow = std::chrono::minutes(1);

  Duration before_ = Duration::max();
  Duration in_window_ = Duration::max();
  TimePoint window_start_{};
  TimePoint last_{};
};

}  // namespace gyre::launch
