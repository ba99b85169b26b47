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

// now + timeout, without overflow.
TimePoint DeadlineAfter(TimePoint now, Duration timeout);

// What is left until the deadline as a poll(2)-style time-out: whole milliseconds rounded up, 0 if it has passed, and
// at most `cap`.
int PollMilliseconds(TimePoint now, TimePoint deadline, int cap = 1000);

}  // namespace gyre
