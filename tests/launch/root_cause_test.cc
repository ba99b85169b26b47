#include "launch/root_cause.h"

#include <cerrno>
#include <csignal>
#include <vector>

#include "gtest/gtest.h"

namespace gyre::launch {

namespace {

TimePoint At(int ms) {
  return TimePoint() + std::chrono::milliseconds(ms);
}

RankEnd Exited(int rank, int code, int ms) {
  return {.rank = rank, .pid = 100 + rank, .when = At(ms), .code = code};
}

RankEnd Killed(int rank, int signal, int ms) {
  return {.rank = rank, .pid = 100 + rank, .when = At(ms), .signal = signal};
}

int RootCauseRank(const std::vector<RankEnd>& ends) {
  const auto cause = FindRootCause(ends);
  return cause ? cause->rank : -1;
}

TEST(RootCauseTest, NoneWhereNothingFailed) {
  EXPECT_EQ(RootCauseRank({Exited(0, 0, 1), Exited(1, 0, 2)}), -1);
}

TEST(RootCauseTest, TheFirstFailureByTime) {
  EXPECT_EQ(RootCauseRank({Exited(3, 0, 1), Exited(2, 7, 2), Exited(0, 1, 3)}), 2);
  EXPECT_EQ(RootCauseRank({Killed(1, SIGSEGV, 1), Killed(0, SIGABRT, 2)}), 1);
}

TEST(RootCauseTest, ASignalWinsOverAnExitCodeJustBefore) {
  EXPECT_EQ(RootCauseRank({Exited(0, 1, 10), Exited(1, 1, 11), Killed(2, SIGKILL, 60)}), 2);
  EXPECT_EQ(RootCauseRank({Exited(0, 1, 10), Killed(2, SIGKILL, 111)}), 0);
}

TEST(RootCauseTest, SoDoesALoss) {
  RankEnd lost = {.rank = 2, .pid = 102, .when = At(60), .lost = true};
  EXPECT_EQ(RootCauseRank({Exited(0, 143, 10), Exited(1, 1, 11), lost}), 2);
  EXPECT_EQ(RootCauseRank({Killed(0, SIGSEGV, 10), lost}), 0);
  lost.when = At(111);  // its host lived when rank 0 had long failed
  EXPECT_EQ(RootCauseRank({Exited(0, 1, 10), lost}), 0);
}

TEST(RootCauseTest, NotIfGyrerunSentIt) {
  RankEnd asked = Killed(2, SIGTERM, 11);
  asked.asked_to = true;
  EXPECT_EQ(RootCauseRank({Exited(0, 1, 10), asked}), 0);
}

TEST(RootCauseTest, AProgramThatCannotBeExecutedIsTheCauseWhateverFollows) {
  RankEnd unexecuted = Exited(1, 127, 5);
  unexecuted.exec_error = ENOEXEC;
  EXPECT_EQ(RootCauseRank({unexecuted, Killed(0, SIGKILL, 6)}), 1);
}

TEST(RootCauseTest, ALostHostIsTheCauseOfWhatFollows) {
  RankEnd lost{.rank = 2, .pid = 102, .when = At(10)};
  lost.lost = true;
  lost.host = "b";
  EXPECT_TRUE(lost.failed());
  EXPECT_EQ(RootCauseRank({lost, Exited(0, 1, 20), Killed(1, SIGABRT, 30)}), 2);
  EXPECT_EQ(ExitCodeOf(lost), 137);
  EXPECT_EQ(Describe(lost, At(0)), "rank 2 on b (pid 102) was lost with its host 0.0 s after the start");
}

TEST(RootCauseTest, ExitCodes) {
  EXPECT_EQ(ExitCodeOf(Exited(0, 42, 0)), 42);
  EXPECT_EQ(ExitCodeOf(Killed(0, SIGKILL, 0)), 137);
  RankEnd unexecuted = Exited(0, 127, 0);
  unexecuted.exec_error = ENOENT;
  EXPECT_EQ(ExitCodeOf(unexecuted), 127);
  unexecuted.exec_error = ENOEXEC;
  EXPECT_EQ(ExitCodeOf(unexecuted), 126);
}

TEST(RootCauseTest, Description) {
  EXPECT_EQ(Describe(Killed(2, SIGKILL, 12'340), At(0)),
            "rank 2 (pid 102) was killed by signal 9 (Killed) 12.3 s after the start");
  EXPECT_EQ(Describe(Exited(0, 3, 50), At(0)), "rank 0 (pid 100) exited with code 3 0.1 s after the start");
}

}  // namespace

}  // namespace gyre::launch
