#include "transport/shm/heartbeat_judge.h"

#include "gtest/gtest.h"

namespace gyre::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Judged : public testing::Test {
 protected:
  // Ticks every `interval` for `duration`; how long peer 0 is silent then, with `beat` as its counter.
  Duration Silence(milliseconds interval, milliseconds duration, uint64_t beat) {
    Duration silence{};
    for (milliseconds passed(0); passed < duration; passed += interval) {
      clock_.Advance(interval);
      judge_.Tick(clock_.Now());
      silence = judge_.SilenceOf(0, beat);
    }
    return silence;
  }

  ManualClock clock_;
  HeartbeatJudge judge_{1, milliseconds(100)};
};

TEST_F(Judged, ACounterThatStandsStillIsSilence) {
  clock_.Advance(seconds(1));
  EXPECT_EQ(Silence(milliseconds(100), milliseconds(100), 5), Duration{});  // it moved
  EXPECT_EQ(Silence(milliseconds(100), milliseconds(1000), 5), seconds(1));
  EXPECT_EQ(Silence(milliseconds(100), milliseconds(100), 6), Duration{});
  EXPECT_EQ(Silence(milliseconds(50), milliseconds(200), 6), milliseconds(200));
}

TEST_F(Judged, WhoNeverBeatIsNotJudged) {
  EXPECT_EQ(Silence(milliseconds(100), seconds(60), 0), Duration{});
}

TEST_F(Judged, OnesOwnFreezeIsNotHeldAgainstOthers) {
  EXPECT_EQ(Silence(milliseconds(100), milliseconds(400), 5), milliseconds(300));
  clock_.Advance(seconds(100));  // this rank was stopped
  judge_.Tick(clock_.Now());
  EXPECT_EQ(judge_.SilenceOf(0, 5), milliseconds(500));
  EXPECT_EQ(Silence(milliseconds(100), milliseconds(400), 5), milliseconds(900));
}

}  // namespace
}  // namespace gyre::shm
