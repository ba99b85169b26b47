// Nothing outlives gyrerun, however it or its ranks end.
#include <unistd.h>

#include <csignal>

#include "gtest/gtest.h"
#include "gyrerun_fixture.h"

namespace gyre::launch {

namespace {

using std::chrono::seconds;

// Ranks with children that leave the session, lose their parents and ignore what can be ignored.
constexpr char kStubborn[] =
    "(trap '' TERM INT HUP; setsid sh -c \"trap '' TERM INT HUP; sleep 1000 & wait\" & sleep 1000) & "
    "(setsid sh -c '(setsid sleep 1001 &) ; exec sleep 1002' &) ; "
    "echo ready; ";

std::vector<std::string> Stubborn(const std::string& then) {
  return {"-np", "3", "--settle", "0.3", "--grace", "0.5", "sh", "-c", kStubborn + then};
}

TEST(SurvivalTest, NothingOutlivesAJobThatEndsWell) {
  Gyrerun gyrerun(Stubborn("sleep 0.2; exit 0"));
  const Outcome outcome = gyrerun.Wait();
  EXPECT_TRUE(outcome.ended);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(gyrerun.Alive().empty());
}

TEST(SurvivalTest, NorOneThatFails) {
  Gyrerun gyrerun(Stubborn("sleep 0.2; test $GYRE_RANK = 2 && exit 7; sleep 1003"));
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 7) << outcome.err;
  EXPECT_TRUE(gyrerun.Alive().empty());
}

TEST(SurvivalTest, NorOneThatIsInterrupted) {
  Gyrerun gyrerun(Stubborn("sleep 1003"));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n"));
  gyrerun.Signal(SIGINT);
  EXPECT_EQ(gyrerun.Wait().code, 130);
  EXPECT_TRUE(gyrerun.Alive().empty());
}

TEST(SurvivalTest, KillingGyrerunEndsEverything) {
  Gyrerun gyrerun(Stubborn("sleep 1003"));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n"));
  EXPECT_GT(gyrerun.Alive().size(), 10u);
  gyrerun.Signal(SIGKILL);
  EXPECT_TRUE(gyrerun.AllGone(seconds(10))) << testing::PrintToString(gyrerun.Alive());
  EXPECT_EQ(gyrerun.Wait().signal, SIGKILL);
}

TEST(SurvivalTest, ADiscoveryScriptEndsWithGyrerun) {
  for (const int signal : {SIGTERM, SIGINT, SIGKILL}) {
    Gyrerun gyrerun({"--host-discovery-script", "trap '' TERM INT; echo ready >&2; sleep 1004 | sleep 1005", "true"},
                    {.join_output = true});
    ASSERT_TRUE(gyrerun.WaitForOutput("ready\n"));
    gyrerun.Signal(signal);
    EXPECT_TRUE(gyrerun.AllGone(seconds(20))) << testing::PrintToString(gyrerun.Alive());
    EXPECT_EQ(gyrerun.Wait().signal, signal);
  }
}

TEST(SurvivalTest, KillingTheSupervisorEndsEverything) {
  Gyrerun gyrerun(Stubborn("sleep 1003"));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n"));
  const auto children = ChildrenOf(gyrerun.pid());
  ASSERT_EQ(children.size(), 1u);
  EXPECT_EQ(kill(children[0], SIGKILL), 0);
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 137) << outcome.err;
  EXPECT_NE(outcome.err.find("the supervisor (pid "), std::string::npos) << outcome.err;
  EXPECT_TRUE(gyrerun.Alive().empty());
}

TEST(SurvivalTest, RanksDieEvenIfBothAreKilledAtOnce) {
  Gyrerun gyrerun({"-np", "2", "sh", "-c", "echo ready; exec sleep 1003"});
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\n"));
  const auto children = ChildrenOf(gyrerun.pid());
  ASSERT_EQ(children.size(), 1u);
  EXPECT_EQ(kill(gyrerun.pid(), SIGSTOP), 0);  // so that it cannot do anything in between
  EXPECT_EQ(kill(children[0], SIGKILL), 0);
  EXPECT_EQ(kill(gyrerun.pid(), SIGKILL), 0);
  EXPECT_TRUE(gyrerun.AllGone(seconds(5)));
  gyrerun.Wait(seconds(1));
}

TEST(SurvivalTest, AStoppedGyrerunThatIsKilledLeavesNothing) {
  Gyrerun gyrerun(Stubborn("sleep 1003"));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n"));
  gyrerun.Signal(SIGSTOP);
  gyrerun.Signal(SIGKILL);
  EXPECT_TRUE(gyrerun.AllGone(seconds(10)));
  gyrerun.Wait(seconds(1));
}

TEST(SurvivalTest, NorDoesAProcessWhoseMainThreadHasEnded) {
  Gyrerun gyrerun({"-np", "2", HEADLESS_PATH});
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "ready\nready\n");
  EXPECT_TRUE(gyrerun.Alive().empty());
}

TEST(SurvivalTest, NorIfGyrerunIsKilled) {
  Gyrerun gyrerun({"-np", "2", "sh", "-c", HEADLESS_PATH "; exec sleep 1003"});
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\n"));
  EXPECT_GE(gyrerun.Alive().size(), 6u);  // gyrerun's two, the ranks, and what they left behind
  gyrerun.Signal(SIGKILL);
  EXPECT_TRUE(gyrerun.AllGone(seconds(10))) << testing::PrintToString(gyrerun.Alive());
  gyrerun.Wait(seconds(1));
}

TEST(SurvivalTest, AFloodOfShortLivedChildrenIsEndedToo) {
  Gyrerun gyrerun({"-np", "2", "--grace", "0.2", "sh", "-c",
                   "trap '' TERM; echo ready; while :; do (setsid sh -c 'trap \"\" TERM; sleep 0.02' &); done"});
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\n"));
  usleep(200'000);
  gyrerun.Signal(SIGTERM);
  EXPECT_EQ(gyrerun.Wait().code, 128 + SIGTERM);
  EXPECT_TRUE(gyrerun.Alive().empty());
}

}  // namespace

}  // namespace gyre::launch
