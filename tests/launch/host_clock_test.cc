// Times of hosts whose clocks began to count at different moments, told over connections that delay.
#include "launch/host_clock.h"

#include <random>

#include "gtest/gtest.h"

namespace gyre::launch {

namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kBeats = milliseconds(250);
constexpr TimePoint kBegin = TimePoint() + hours(5);  // here

// A host whose clock says `ahead` more than ours, and whose messages take `delay`.
struct Host {
  Duration ahead;
  Duration delay;
  HostClock clock{};

  TimePoint Say(TimePoint when) { return clock.OnHeard(when + ahead, when + delay); }
};

TEST(HostClockTest, OrderIsKeptWhateverTheClocksSay) {
  Host booted_long_ago{.ahead = hours(10'000), .delay = microseconds(300)};
  Host just_booted{.ahead = -hours(4), .delay = microseconds(300)};
  const TimePoint first = booted_long_ago.Say(kBegin + milliseconds(1));
  const TimePoint second = just_booted.Say(kBegin + milliseconds(2));
  const TimePoint third = booted_long_ago.Say(kBegin + milliseconds(3));
  EXPECT_EQ(second - first, milliseconds(1));
  EXPECT_EQ(third - second, milliseconds(1));
  EXPECT_EQ(first, kBegin + milliseconds(1) + microseconds(300));
}

// Messages are held up by 0 to 500 ms; what counts is the one in ten that was not.
TEST(HostClockTest, TheSmallestDelayCounts) {
  std::mt19937 random(7);  // the same delays each time: at most 2 ms for one of 40
  Host host{.ahead = hours(1), .delay = {}};
  TimePoint now = kBegin;
  for (int beat = 0; beat < 40; ++beat) {
    host.delay = milliseconds(2 + (random() % 10 == 0 ? 0 : random() % 500));
    const TimePoint here = host.Say(now);
    EXPECT_LE(here, now + host.delay);  // never after it arrived
    EXPECT_GE(here, now + milliseconds(2));
    now += kBeats;
  }
  host.delay = milliseconds(490);
  EXPECT_EQ(host.Say(now), now + milliseconds(2));
  EXPECT_EQ(host.clock.last(), now + milliseconds(2));
}

// What it said last arrived long after it was sent, perhaps when it was dead already.
TEST(HostClockTest, TheLastIsWhenItWasSent) {
  Host host{.ahead = -hours(1), .delay = milliseconds(1)};
  host.Say(kBegin);
  host.delay = seconds(1);
  host.Say(kBegin + kBeats);
  EXPECT_EQ(host.clock.last(), kBegin + kBeats + milliseconds(1));
}

TEST(HostClockTest, WhatIsYetToComeIsNow) {
  Host host{.ahead = hours(1), .delay = milliseconds(1)};
  host.Say(kBegin);
  for (const Duration ahead : {Duration(hours(2)), Duration(hours(3)), Duration(int64_t{1} << 61)}) {
    host.ahead = ahead;
    EXPECT_EQ(host.Say(kBegin + seconds(1)), kBegin + seconds(1) + milliseconds(1));
  }
  EXPECT_LE(host.clock.OnHeard(TimePoint(), kBegin + seconds(2)), kBegin + seconds(2));
}

// A clock that loses 0.1 ms a second would be 17 s late after two days.
TEST(HostClockTest, ClocksThatDrift) {
  for (const int drift : {-1, 1}) {
    HostClock clock;
    TimePoint now = kBegin, there = kBegin - hours(1);
    for (; now < kBegin + hours(48); now += kBeats, there += kBeats + drift * kBeats / 10'000) {
      ASSERT_LT(now - clock.OnHeard(there, now), milliseconds(13)) << drift << " after " << (now - kBegin) / minutes(1);
    }
  }
}

// The minimum is never over less than a minute.
TEST(HostClockTest, AMinuteOfDelaysIsOvercome) {
  Host host{.ahead = {}, .delay = {}};
  for (TimePoint now = kBegin; now < kBegin + minutes(10); now += kBeats) {
    host.delay = (now - kBegin) % seconds(59) == Duration() ? milliseconds(1) : milliseconds(400);
    ASSERT_EQ(host.Say(now), now + milliseconds(1)) << (now - kBegin) / milliseconds(1);
  }
}

}  // namespace

}  // namespace gyre::launch
