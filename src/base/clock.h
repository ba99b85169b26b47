// Clock: where time comes from, so that state machines can be tested under a time of the test's own.
#pragma once

#include <chrono>

namespace gyre {

using Duration = std::chrono::steady_clock::duration;
using TimePoint = std::chrono::steady_clock::time_point;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;  // monotonic
};

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

// Stands still until told otherwise. Not thread-safe.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  void Advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
};

// now + timeout, in whatever unit it is; the end of time where that would overflow.
template <typename Rep, typename Period>
TimePoint DeadlineAfter(TimePoint now, std::chrono::duration<Rep, Period> timeout) {
  using Seconds = std::chrono::duration<double>;
  if (Seconds(timeout) >= Seconds(TimePoint::max() - now)) return TimePoint::max();
  return now + std::chrono::duration_cast<Duration>(timeout);
}

// What is left until the deadline as a poll(2)-style time-out: whole milliseconds rounded up, 0 if it has passed, and
// at most `cap`.
int PollMilliseconds(TimePoint now, TimePoint deadline, int cap = 1000);

}  // namespace gyre
