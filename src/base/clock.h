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

// --- A caller may give any duration, milliseconds::max() for example. These two functions do not overflow ---

// The duration in the clock's unit. The longest one, or the shortest, if it is out of range.
template <typename Rep, typename Period>
constexpr Duration Saturated(std::chrono::duration<Rep, Period> duration) {
  using Given = std::chrono::duration<Rep, Period>;
  if (duration >= std::chrono::duration_cast<Given>(Duration::max())) return Duration::max();
  if (duration <= std::chrono::duration_cast<Given>(Duration::min())) return Duration::min();
  return std::chrono::duration_cast<Duration>(duration);
}

// now + timeout. TimePoint::max() if that is out of range. REQUIRES: now is not before the clock's epoch.
template <typename Rep, typename Period>
constexpr TimePoint DeadlineAfter(TimePoint now, std::chrono::duration<Rep, Period> timeout) {
  const Duration wait = Saturated(timeout);
  return wait >= TimePoint::max() - now ? TimePoint::max() : now + wait;
}

// What is left until the deadline as a poll(2)-style time-out: whole milliseconds rounded up, 0 if it has passed, and
// at most `cap`.
int PollMilliseconds(TimePoint now, TimePoint deadline, int cap = 1000);

}  // namespace gyre
