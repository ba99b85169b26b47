#include "launch/ending.h"

#include <csignal>

#include "gtest/gtest.h"

namespace gyre::launch {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class EndingTest : public testing::Test {
 protected:
  TimePoint At(int ms) const { return start_ + milliseconds(ms); }

  const TimePoint start_ = TimePoint() + seconds(1000);
  const Ending::Limits limits_{.settle = seconds(2), .grace = seconds(5), .timeout = seconds(60)};
  Ending ending_{limits_, start_};
};

TEST_F(EndingTest, AFailureSettlesThenTerminatesThenKillsThenGivesUp) {
  EXPECT_EQ(ending_.OnRankFailed(At(100)), 0);
  EXPECT_EQ(ending_.next(), At(2'100));
  EXPECT_EQ(ending_.OnTime(At(2'099)), 0);
  EXPECT_FALSE(ending_.told());
  EXPECT_EQ(ending_.OnTime(At(2'100)), SIGTERM);
  EXPECT_TRUE(ending_.told());
  EXPECT_EQ(ending_.OnTime(At(7'099)), 0);
  EXPECT_EQ(ending_.OnTime(At(7'100)), SIGKILL);
  EXPECT_FALSE(ending_.given_up());
  EXPECT_EQ(ending_.OnTime(At(60'000)), 0);
  EXPECT_TRUE(ending_.given_up());
  EXPECT_EQ(ending_.reason(), EndReason::kRankFailed);
}

TEST_F(EndingTest, LaterFailuresDoNotProlongSettling) {
  ending_.OnRankFailed(At(0));
  EXPECT_EQ(ending_.OnRankFailed(At(1'900)), 0);
  EXPECT_EQ(ending_.OnTime(At(2'000)), SIGTERM);
}

TEST_F(EndingTest, StoppedRanksAreNotWaitedFor) {
  EXPECT_EQ(ending_.OnOnlyStoppedLeft(At(0)), 0);  // nothing has failed: somebody may let them go on
  ending_.OnRankFailed(At(100));
  EXPECT_EQ(ending_.OnOnlyStoppedLeft(At(200)), SIGTERM);
  EXPECT_EQ(ending_.OnOnlyStoppedLeft(At(300)), 0);
  EXPECT_EQ(ending_.OnTime(At(5'200)), SIGKILL);
  EXPECT_EQ(ending_.reason(), EndReason::kRankFailed);
}

TEST_F(EndingTest, TimeoutTerminates) {
  EXPECT_EQ(ending_.OnTime(At(59'999)), 0);
  EXPECT_EQ(ending_.OnTime(At(60'000)), SIGTERM);
  EXPECT_EQ(ending_.reason(), EndReason::kTimeout);
}

TEST_F(EndingTest, WithoutTimeoutNothingIsDue) {
  EXPECT_FALSE(Ending({.settle = seconds(2), .grace = seconds(5), .timeout = {}}, start_).next());
}

TEST_F(EndingTest, ASignalIsPassedOnAsItIs) {
  EXPECT_EQ(ending_.OnSignal(SIGHUP, At(10)), SIGHUP);
  EXPECT_EQ(ending_.reason(), EndReason::kSignal);
  EXPECT_EQ(ending_.signal(), SIGHUP);
  EXPECT_EQ(ending_.OnTime(At(5'010)), SIGKILL);
}

TEST_F(EndingTest, ASecondInterruptKillsUnlessItIsTheSameOne) {
  EXPECT_EQ(ending_.OnSignal(SIGINT, At(0)), SIGINT);
  EXPECT_EQ(ending_.OnSignal(SIGINT, At(100)), 0);
  EXPECT_EQ(ending_.OnSignal(SIGINT, At(400)), SIGKILL);
  EXPECT_EQ(ending_.OnSignal(SIGINT, At(800)), 0);
  EXPECT_EQ(ending_.signal(), SIGINT);
}

TEST_F(EndingTest, ASecondTermChangesNothing) {
  EXPECT_EQ(ending_.OnSignal(SIGTERM, At(0)), SIGTERM);
  EXPECT_EQ(ending_.OnSignal(SIGTERM, At(1'000)), 0);
  EXPECT_EQ(ending_.next(), At(5'000));
}

TEST_F(EndingTest, TheFirstReasonStays) {
  ending_.OnRankFailed(At(0));
  EXPECT_EQ(ending_.OnSignal(SIGINT, At(500)), SIGINT);  // no more settling, though
  EXPECT_EQ(ending_.reason(), EndReason::kRankFailed);
  EXPECT_EQ(ending_.OnOutputLost(At(600)), 0);
  EXPECT_EQ(ending_.reason(), EndReason::kRankFailed);
}

TEST_F(EndingTest, FailuresOfRanksThatWereToldAreNoReason) {
  ending_.OnSignal(SIGTERM, At(0));
  EXPECT_EQ(ending_.OnRankFailed(At(10)), 0);
  EXPECT_EQ(ending_.reason(), EndReason::kSignal);
  EXPECT_EQ(ending_.next(), At(5'000));
}

TEST_F(EndingTest, WithoutGuardTheGraceIsShort) {
  EXPECT_EQ(ending_.OnGuardLost(At(0)), SIGTERM);
  EXPECT_EQ(ending_.next(), At(1'000));
  EXPECT_EQ(ending_.OnTime(At(1'000)), SIGKILL);
  EXPECT_EQ(ending_.reason(), EndReason::kGuardLost);
}

}  // namespace

}  // namespace gyre::launch
