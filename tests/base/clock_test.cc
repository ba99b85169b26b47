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
  EXPECT_EQ(DeadlineAfter(clock.Now(), std::chrono::hours::max()), TimePoint::max());
  EXPECT_EQ(DeadlineAfter(clock.Now(), std::chrono::duration<double>(1e300)), TimePoint::max());
  EXPECT_EQ(DeadlineAfter(clock.Now(), milliseconds(-5)) - clock.Now(), milliseconds(-5));
  EXPECT_LT(DeadlineAfter(clock.Now(), milliseconds::min()), TimePoint{});
  // A deadline after a deadline.
  EXPECT_EQ(DeadlineAfter(TimePoint::max(), milliseconds(5)), TimePoint::max());
  EXPECT_EQ(DeadlineAfter(TimePoint::max() - milliseconds(6), milliseconds(5)), TimePoint::max() - milliseconds(1));
}

TEST(Clock, DurationsOutOfRangeAreCut) {
  EXPECT_EQ(Saturated(milliseconds(5)), milliseconds(5));
  EXPECT_EQ(Saturated(milliseconds(-5)), milliseconds(-5));
  EXPECT_EQ(Saturated(milliseconds::max()), Duration::max());
  EXPECT_EQ(Saturated(milliseconds::min()), Duration::min());
  EXPECT_EQ(Saturated(std::chrono::floor<milliseconds>(Duration::max()) - milliseconds(1)),
            std::chrono::floor<milliseconds>(Duration::max()) - milliseconds(1));
  EXPECT_EQ(Saturated(std::chrono::hours(24 * 365)), std::chrono::hours(24 * 365));
  EXPECT_EQ(Saturated(std::chrono::duration<double>(-1e300)), Duration::min());
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
