#include "base/clock.h"

#include "gtest/gtest.h"

namespace gyre {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(Clock, DeadlineDoesNotOverflow) {
  ManualClock clock;
  clock.Advance(std::chrono::hours(1));
  EXPECT_EQ(DeadlineAfter(clock.Now(), milliseconds(5)) - clock.Now(), milliseconds(5));
  EXPECT_EQ(DeadlineAfter(clock.Now(), Duration::max()), TimePoint::max());
  EXPECT_EQ(DeadlineAfter(clock.Now(), milliseconds::max()), TimePoint::max());
  EXPECT_EQ(DeadlineAfter(clock.Now(), milliseconds(-5)) - clock.Now(), milliseconds(-5));
}

TEST(Clock, PollMillisecondsRoundsUpAndIsCapped) {
  const TimePoint now = TimePoint{} + std::chrono::hours(1);
  EXPECT_EQ(PollMilliseconds(now, now), 0);
  EXPECT_EQ(PollMilliseconds(now, now - milliseconds(1)), 0);
  EXPECT_EQ(PollMilliseconds(now, now + nanoseconds(1)), 1);
  EXPECT_EQ(PollMilliseconds(now, now + milliseconds(7)), 7);
  EXPECT_EQ(PollMilliseconds(now, TimePoint::max()), 1000);
}

}  // namespace
}  // namespace gyre
