// gyrerun as a whole: exit codes, root cause, signals, environment, input.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "gyrerun_fixture.h"
#include "support/program.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::string> Shell(int ranks, const std::string& script, std::vector<std::string> options = {}) {
  std::vector<std::string> arguments = {"-np", std::to_string(ranks)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  for (const char* word : {"sh", "-c", script.c_str()}) arguments.emplace_back(word);
  return arguments;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(GyrerunTest, AllWell) {
  const Outcome outcome = RunToEnd(Shell(4, "exit 0"));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out + outcome.err, "");
}

TEST(GyrerunTest, TheFailedRanksCode) {
  const Outcome outcome = RunToEnd(Shell(3, "test $GYRE_RANK != 1 || exit 42"));
  EXPECT_EQ(outcome.code, 42);
  EXPECT_TRUE(Has(outcome.err, "gyrerun: rank 1 (pid ")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "exited with code 42")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "2 other ranks ended after it; exit code 42\n") || Has(outcome.err, "other ranks ended"))
      << outcome.err;
}

TEST(GyrerunTest, TheFirstFailureByTimeIsTheRootCause) {
  const Outcome outcome = RunToEnd(Shell(3, "sleep 0.$((3 * GYRE_RANK)); exit $((10 + GYRE_RANK))"));
  EXPECT_EQ(outcome.code, 10) << outcome.err;
}

TEST(GyrerunTest, ARankKilledByASignalIs128PlusIt) {
  const Outcome outcome = RunToEnd(Shell(2, "test $GYRE_RANK = 0 || kill -9 $$; sleep 0.5; exit 1"));
  EXPECT_EQ(outcome.code, 137);
  EXPECT_TRUE(Has(outcome.err, "rank 1 (pid ")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "was killed by signal 9 (Killed)")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "1 other rank ended after it; exit code 137\n")) << outcome.err;
  const Outcome fault = RunToEnd(Shell(2, "test $GYRE_RANK = 0 || { ulimit -c 0; echo why >&2; kill -SEGV $$; }"));
  EXPECT_EQ(fault.code, 139);
  EXPECT_TRUE(Has(fault.err, "was killed by signal 11 (Segmentation fault)")) << fault.err;
  EXPECT_TRUE(Has(fault.err, "the last lines of rank 1:\ngyrerun:   why\n")) << fault.err;
}

TEST(GyrerunTest, SurvivorsMayReportBeforeTheyAreTold) {
  const Outcome outcome = RunToEnd(Shell(2, "test $GYRE_RANK = 0 || kill -9 $$; sleep 1; echo rank 1 is lost; exit 3"));
  EXPECT_EQ(outcome.code, 137);
  EXPECT_EQ(outcome.out, "rank 1 is lost\n");
}

TEST(GyrerunTest, SurvivorsThatGoOnAreToldAfterSettleAndKilledAfterGrace) {
  const Outcome outcome =
      RunToEnd(Shell(2, "test $GYRE_RANK = 0 || exit 5; trap 'echo told' TERM; while :; do sleep 0.05; done",
                     {"--settle", "0.3", "--grace", "0.5"}));
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.out, "told\n");
  EXPECT_GE(outcome.took, milliseconds(800));
  EXPECT_LT(outcome.took, seconds(10));
}

TEST(GyrerunTest, StoppedRanksAreNamedAndEnded) {
  const Outcome outcome = RunToEnd(
      Shell(2, "test $GYRE_RANK = 0 && kill -STOP $$; sleep 0.5; exit 9", {"--settle", "0.2", "--grace", "0.5"}));
  EXPECT_EQ(outcome.code, 9);
  EXPECT_TRUE(Has(outcome.err, "stopped then: rank 0 (pid ")) << outcome.err;
}

TEST(GyrerunTest, AStoppedRankIsNotWaitedForOnceTheOthersHaveEnded) {
  const Outcome outcome = RunToEnd(
      Shell(3, "test $GYRE_RANK = 0 && kill -STOP $$; sleep 0.$((2 * GYRE_RANK + 3)); exit 9", {"--settle", "60"}));
  EXPECT_EQ(outcome.code, 9);
  EXPECT_EQ(outcome.err.find("killed"), std::string::npos) << outcome.err;
  EXPECT_LT(outcome.took, seconds(10));
}

TEST(GyrerunTest, ARankThatStopsAfterTheOthersHaveEndedIsEnded) {
  const Outcome outcome =
      RunToEnd(Shell(2, "test $GYRE_RANK = 1 && exit 9; sleep 0.5; kill -STOP $$; sleep 100", {"--settle", "60"}));
  EXPECT_EQ(outcome.code, 9);
  EXPECT_LT(outcome.took, seconds(10));
}

TEST(GyrerunTest, AStoppedRankThatIgnoresTermIsKilled) {
  const Outcome outcome = RunToEnd(Shell(
      2, "trap '' TERM; test $GYRE_RANK = 0 && kill -STOP $$; sleep 0.5; test $GYRE_RANK = 0 && sleep 100; exit 9",
      {"--settle", "0.2", "--grace", "0.5"}));
  EXPECT_EQ(outcome.code, 9);
  EXPECT_LT(outcome.took, seconds(20));
}

TEST(GyrerunTest, Timeout) {
  const Outcome outcome = RunToEnd({"-np", "2", "--timeout", "0.5", "sleep", "100"});
  EXPECT_EQ(outcome.code, 124);
  EXPECT_TRUE(Has(outcome.err, "--timeout 0.5 s")) << outcome.err;
}

TEST(GyrerunTest, TimeoutKillsWhatIgnoresTerm) {
  const Outcome outcome =
      RunToEnd(Shell(2, "trap '' TERM; while :; do sleep 0.1; done", {"--timeout", "0.3", "--grace", "0.3"}));
  EXPECT_EQ(outcome.code, 124);
  EXPECT_LT(outcome.took, seconds(20));
}

TEST(GyrerunTest, WrongUse) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"-np", "0", "ls"}, {"ls"}, {"-np", "2"}, {"--what", "ls"}}) {
    const Outcome outcome = RunToEnd(arguments);
    EXPECT_EQ(outcome.code, 64);
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
    EXPECT_TRUE(Has(outcome.err, "; try: ")) << outcome.err;
  }
}

TEST(GyrerunTest, MissingAndUnusablePrograms) {
  const Outcome missing = RunToEnd({"-np", "2", "no-such-program-here"});
  EXPECT_EQ(missing.code, 127);
  EXPECT_EQ(missing.err.find('\n'), missing.err.size() - 1) << missing.err;
  EXPECT_EQ(RunToEnd({"-np", "2", "/etc/passwd"}).code, 126);
}

TEST(GyrerunTest, AProgramThatFailsToExecuteIs126) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "program";
  std::ofstream(path) << "neither a script nor a binary";
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  const Outcome outcome = RunToEnd({"-np", "2", path});
  EXPECT_EQ(outcome.code, 126) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "could not be executed (")) << outcome.err;
}

TEST(GyrerunTest, Identity) {
  const Outcome outcome = RunToEnd(Shell(2,
                                         "echo $GYRE_RANK $GYRE_SIZE $GYRE_EPOCH $A; test -r "
                                         "/proc/self/fd/${GYRE_SECRET_FD%,*} && echo ${GYRE_STORE%:*} ${#GYRE_JOB_ID}",
                                         {"-x", "A=b c"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(Has(outcome.out, "0 2 0 b c\n") && Has(outcome.out, "1 2 0 b c\n")) << outcome.out;
  EXPECT_TRUE(Has(outcome.out, "127.0.0.1 16\n")) << outcome.out;
}

TEST(GyrerunTest, TheSecretIsNowhereToBeSeen) {
  // Compared inside the rank: its secret, as bytes and as digits, against all that others may see of the job.
  const Outcome outcome = RunToEnd(Shell(
      1,
      "secret=$(od -An -tx1 -v /proc/self/fd/${GYRE_SECRET_FD%,*} | tr -d ' \\n'); test ${#secret} -ge 32 || exit 3; "
      "for p in $$ $PPID; do for f in cmdline environ; do "
      "case $(od -An -tx1 -v /proc/$p/$f | tr -d ' \\n') in *$secret*) exit 4;; esac; "
      "grep -qi $secret /proc/$p/$f && exit 5; done; done; exit 0",
      {"--verbose"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(GyrerunTest, RankZeroReadsTheInput) {
  const Outcome outcome = RunToEnd({"-np", "2", "--tag-output", "cat"}, {.input = "hello\n"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "[0]<stdout>:hello\n");
}

TEST(GyrerunTest, SignalsInRanksAreDefault) {
  const Outcome outcome = RunToEnd({"-np", "1", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"});
  // Signal 32 is glibc's own, and out of reach.
  EXPECT_THAT(outcome.out, testing::MatchesRegex("SigBlk:\t0{16}\nSigIgn:\t0{8}[08]0{7}\n"));
}

TEST(GyrerunTest, RanksHaveNoDescriptorsOfGyrerunButTheSecretAndTheReports) {
  const std::vector<std::string> count = {"sh", "-c", "exec ls /proc/self/fd | wc -l"};
  support::Program alone(count);
  ASSERT_TRUE(alone.WaitFor(seconds(20)));
  const Outcome outcome = RunToEnd({"-np", "1", count[0], count[1], count[2]});
  EXPECT_EQ(std::stoi(outcome.out), std::stoi(alone.out()) + 2);
}

// A script on the way to the rank hands the descriptors on; what the rank starts has none of them.
TEST(GyrerunTest, ProgramsThatARankStartsHaveNoDescriptorsOfTheJob) {
  const std::string count = "exec ls /proc/self/fd | wc -l";
  support::Program alone({"sh", "-c", count});
  ASSERT_TRUE(alone.WaitFor(seconds(20)));
  const Outcome outcome = RunToEnd(Shell(1, "sh -c '" JOB_RANK_PATH " start \"" + count + "\"'"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, alone.out());
}

// Nobody needs the secret there.
TEST(GyrerunTest, AProgramThatTheOnlyRankStartsMayUseGyre) {
  const Outcome outcome = RunToEnd({"-np", "1", JOB_RANK_PATH, "start", JOB_RANK_PATH " start true"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

class GyrerunSignalTest : public testing::TestWithParam<int> {};

TEST_P(GyrerunSignalTest, EndsTheJobCleanly) {
  Gyrerun gyrerun(Shell(2, "trap 'echo caught; exit 0' INT TERM HUP; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\n"));
  gyrerun.Signal(GetParam());
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 128 + GetParam()) << outcome.err;
  EXPECT_TRUE(Has(outcome.out, "caught\ncaught\n")) << outcome.out;
  EXPECT_TRUE(Has(outcome.err, "the job was ended by SIG")) << outcome.err;
  EXPECT_TRUE(gyrerun.Alive().empty());
}

INSTANTIATE_TEST_SUITE_P(Signals, GyrerunSignalTest, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST_P(GyrerunSignalTest, StaysIgnoredWhereItWas) {
  Gyrerun gyrerun(Shell(2, "echo ready; sleep 1; echo done"), {.ignored = GetParam()});
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\n"));
  gyrerun.Signal(GetParam());
  const auto children = ChildrenOf(gyrerun.pid());
  ASSERT_EQ(children.size(), 1u);
  EXPECT_EQ(kill(children[0], GetParam()), 0);  // the supervisor, too
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(Has(outcome.out, "done\ndone\n")) << outcome.out;
}

TEST(GyrerunTest, ASecondInterruptKillsAtOnce) {
  Gyrerun gyrerun(Shell(2, "trap 'echo no' INT; echo ready; while :; do sleep 0.05; done", {"--grace", "60"}));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\n"));
  gyrerun.Signal(SIGINT);
  ASSERT_TRUE(gyrerun.WaitForOutput("no\nno\n"));
  usleep(300'000);
  gyrerun.Signal(SIGINT);
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_TRUE(gyrerun.Alive().empty());
}

TEST(GyrerunTest, UserSignalsArePassedOn) {
  Gyrerun gyrerun(
      Shell(2, "trap 'echo one' USR1; trap 'echo two; exit 0' USR2; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\n"));
  gyrerun.Signal(SIGUSR1);
  ASSERT_TRUE(gyrerun.WaitForOutput("one\none\n"));
  gyrerun.Signal(SIGUSR2);
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(GyrerunTest, VerboseSaysWhatStartsAndEnds) {
  const Outcome outcome = RunToEnd(Shell(2, "exit 0", {"--verbose"}));
  EXPECT_TRUE(Has(outcome.err, "gyrerun: rank 1: pid ")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "exited with code 0 ")) << outcome.err;
}

TEST(GyrerunTest, ManyRanks) {
  const Outcome outcome = RunToEnd(Shell(64, "echo $GYRE_RANK"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 64);
}

TEST(GyrerunTest, DryRunStartsNothing) {
  const Outcome outcome = RunToEnd(Shell(2, "echo started", {"--dry-run"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_FALSE(Has(outcome.out, "\nstarted")) << outcome.out;
  EXPECT_TRUE(Has(outcome.out, "rank 1: GYRE_RANK=1")) << outcome.out;
  EXPECT_TRUE(Has(RunToEnd(Shell(2, "", {"--dry-run", "--servers", "2"})).out, " and 2 parameter servers\n"));
}

TEST(GyrerunTest, TooManyServersAreRefusedWhereverTheRanksAre) {
  for (const char* hosts : {"localhost:257", "a:257"}) {
    const Outcome outcome = RunToEnd({"-H", hosts, "--colocate-servers", "--dry-run", "true"});
    EXPECT_EQ(outcome.code, 64) << hosts << outcome.err;
    EXPECT_TRUE(Has(outcome.err, "256 ranks at most")) << hosts << outcome.err;
  }
}

TEST(GyrerunTest, SignalsAreForTheRanksNotForTheServers) {
  Gyrerun gyrerun(Shell(2, "trap 'echo one' USR1; trap 'exit 75' TERM; echo ready; while :; do sleep 0.05; done",
                        {"--servers", "1", "--verbose"}));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\n"));
  gyrerun.Signal(SIGUSR1);
  ASSERT_TRUE(gyrerun.WaitForOutput("one\none\n"));
  gyrerun.Signal(SIGTERM);
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_FALSE(Has(outcome.err, "server 0 (pid")) << outcome.err;
}

TEST(GyrerunTest, ARankThatWaitsForAnotherLifeDoesNotHoldUpTheEnd) {
  Gyrerun gyrerun(Shell(1, "exit 3", {"--servers", "1", "--restart-rank", "7", "--grace", "60"}),
                  {.join_output = true});
  ASSERT_TRUE(gyrerun.WaitForOutput("it is started again, 7 of 7"));  // in more than a second
  const std::vector<pid_t> supervisor = ChildrenOf(gyrerun.pid());
  ASSERT_EQ(supervisor.size(), 1u);
  int processes = 0;  // that it has a descriptor of: its guard and the server, none of the dead
  for (const auto& file : std::filesystem::directory_iterator("/proc/" + std::to_string(supervisor[0]) + "/fd")) {
    std::error_code ignored;
    processes += Has(std::filesystem::read_symlink(file, ignored).string(), "pidfd") ? 1 : 0;
  }
  EXPECT_EQ(processes, 2);
  gyrerun.Signal(SIGTERM);
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 143) << outcome.out;
}

TEST(GyrerunTest, AServersLastLinesAreItsOwn) {
  // What a server does not understand keeps it from starting; a shell does not mind.
  const Outcome outcome = RunToEnd(Shell(2, "echo of a rank; sleep 60", {"--servers", "2", "-x", "GYRE_TIMEOUT=soon"}));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "; 2 other ranks ended after it")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "gyrerun: the last lines of server ")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "gyrerun:   gyrerun: server ")) << outcome.err;
}

}  // namespace

}  // namespace gyre::launch
