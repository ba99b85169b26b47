#include "transport/shm/heartbeat_judge.h"

#include "gtest/gtest.h"

namespace gyre::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Judged : public testing::Test {
 protected:
  // Ticks every `interval` for `duration`; whether peer 0 was found frozen, with `beat` as its counter.
  bool Frozen(milliseconds interval, milliseconds duration, uint64_t beat) {
    bool frozen = false;
    for (milliseconds passed(0); passed < duration; passed += interval) {
      clock_.Advance(interval);
      judge_.Tick(clock_.Now());
      frozen = judge_.IsFrozen(0, beat) || frozen;
    }
    return frozen;
  }

  ManualClock clock_;
  HeartbeatJudge judge_{1, milliseconds(100), milliseconds(1000)};
};

TEST_F(Judged, FindsAFrozenPeerOnceAtTheTimeout) {
  clock_.Advance(seconds(1));
  EXPECT_FALSE(Frozen(milliseconds(100), milliseconds(1000), 5));
  EXPECT_TRUE(Frozen(milliseconds(100), milliseconds(200), 5));
  EXPECT_FALSE(Frozen(milliseconds(100), milliseconds(5000), 5)) << "said twice";
}

TEST_F(Judged, ABeatingPeerIsNotFrozen) {
  for (uint64_t beat = 1; beat < 100; ++beat) EXPECT_FALSE(Frozen(milliseconds(100), milliseconds(900), beat));
}

TEST_F(Judged, WhoNeverBeatIsNotJudged) {
  EXPECT_FALSE(Frozen(milliseconds(100), seconds(60), 0));
}

TEST_F(Judged, OnesOwnFreezeIsNotHeldAgainstOthers) {
  EXPECT_FALSE(Frozen(milliseconds(100), milliseconds(300), 5));
  clock_.Advance(seconds(100));  // this rank was stopped
  judge_.Tick(clock_.Now());
  EXPECT_FALSE(judge_.IsFrozen(0, 5));
  EXPECT_FALSE(Frozen(milliseconds(100), milliseconds(400), 5));
  EXPECT_TRUE(Frozen(milliseconds(100), milliseconds(500), 5));
}

TEST(HeartbeatJudge, ZeroMeansNever) {
  HeartbeatJudge judge(1, milliseconds(100), milliseconds(0));
  TimePoint now{};
  for (int i = 0; i < 1000; ++i) {
    judge.Tick(now += milliseconds(100));
    EXPECT_FALSE(judge.IsFrozen(0, 1));
  }
}

}  // namespace
}  // namespace gyre::shm
