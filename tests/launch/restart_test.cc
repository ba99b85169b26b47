// --max-restarts, SIGTERM and exit code 75, the status file.
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"
#include "remote_fixture.h"

namespace gyre::launch {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RestartTest : public RemoteTest {
 protected:
  static std::vector<std::string> Here(int ranks, std::vector<std::string> options, const std::string& script) {
    std::vector<std::string> arguments = {"-np", std::to_string(ranks), "--restart-delay", "0.05"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    for (const char* word : {"sh", "-c", script.c_str()}) arguments.emplace_back(word);
    return arguments;
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(folder_.path() / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(RestartTest, AJobThatFailsIsStartedAgainInTheNextEpoch) {
  const std::string dir = folder_.path() / "out";
  const std::string script = "echo $GYRE_EPOCH $GYRE_JOB_ID; test $GYRE_EPOCH = 2 || exit $((40 + GYRE_EPOCH))";
  const Outcome outcome = RunToEnd(Here(1, {"--max-restarts", "3", "--output-dir", dir}, script));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string job = outcome.out.substr(2, outcome.out.find('\n') - 2);
  EXPECT_EQ(outcome.out, "0 " + job + "\n1 " + job + "\n2 " + job + "\n");
  EXPECT_EQ(Read("out/rank.0.out"), outcome.out);
  EXPECT_TRUE(Has(outcome.err, "exit code 40\ngyrerun: restart 1 of 3 in 0.")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "exit code 41\ngyrerun: restart 2 of 3 in 0.")) << outcome.err;
}

TEST_F(RestartTest, TheLastFailureIsTheJobs) {
  const Outcome outcome = RunToEnd(Here(2, {"--max-restarts", "2", "--settle", "0"},
                                        "test $GYRE_RANK = 0 || exit $((40 + GYRE_EPOCH)); exec sleep 100"));
  EXPECT_EQ(outcome.code, 42) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "restart 2 of 2")) << outcome.err;
}

TEST_F(RestartTest, WhatAnotherRunCannotHelpIsNotRestarted) {
  const std::string bad = folder_.path() / "bad";
  std::ofstream(bad) << "#!/no/such/interpreter\n";
  EXPECT_EQ(chmod(bad.c_str(), 0755), 0);
  const Outcome outcome = RunToEnd({"-np", "1", "--max-restarts", "3", "--restart-delay", "0.05", bad});
  EXPECT_EQ(outcome.code, 127) << outcome.err;
  EXPECT_FALSE(Has(outcome.err, "restart 1")) << outcome.err;
  const Outcome halted = RunToEnd(Here(1, {"--max-restarts", "3"}, "exit 75"));
  EXPECT_EQ(halted.code, 75) << halted.err;
  EXPECT_FALSE(Has(halted.err, "restart 1")) << halted.err;
  const Outcome late = RunToEnd(Here(1, {"--max-restarts", "3", "--timeout", "0.3"}, "exec sleep 100"));
  EXPECT_EQ(late.code, 124) << late.err;
}

// And for the pauses between them.
TEST_F(RestartTest, TheTimeOutIsForAllRuns) {
  for (const char* delay : {"0.05", "30"}) {
    const Outcome outcome = RunToEnd({"-np", "1", "--max-restarts", "1000000", "--restart-delay", delay, "--timeout",
                                      "1", "sh", "-c", "sleep 0.1; exit 1"});
    EXPECT_EQ(outcome.code, 124) << outcome.err;
    EXPECT_TRUE(Has(outcome.err, "the job was ended after --timeout 1 s\n")) << outcome.err;
    EXPECT_LT(outcome.took, seconds(8)) << delay;
  }
}

TEST_F(RestartTest, ASignalWhileRanksSettleIsNotFollowedByARestart) {
  Gyrerun gyrerun(
      Here(2, {"--max-restarts", "3", "--settle", "5"}, "echo up; test $GYRE_RANK = 0 && exit 1; exec sleep 100"));
  ASSERT_TRUE(gyrerun.WaitForOutput("up\nup\n"));
  usleep(300'000);  // for gyrerun to have seen rank 0's end
  gyrerun.Signal(SIGTERM);
  const Outcome outcome = gyrerun.Wait(seconds(20));
  EXPECT_TRUE(outcome.ended);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_FALSE(Has(outcome.err, "restart 1")) << outcome.err;
}

TEST_F(RestartTest, ASignalBetweenTwoRunsEndsTheJob) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    Gyrerun gyrerun({"-np", "1", "--max-restarts", "1", "--restart-delay", "100", "sh", "-c", "echo up; exit 1"});
    ASSERT_TRUE(gyrerun.WaitForOutput("up\n"));
    usleep(300'000);  // to be between two runs; a shorter time would be within the first, and end it as well
    gyrerun.Signal(signal);
    const Outcome outcome = gyrerun.Wait(seconds(20));
    EXPECT_TRUE(outcome.ended);
    EXPECT_EQ(outcome.code, signal == SIGTERM ? 128 + SIGTERM : -1) << outcome.err;
    EXPECT_TRUE(gyrerun.AllGone(seconds(10)));
  }
}

TEST_F(RestartTest, OverHosts) {
  const std::string script =
      "echo $GYRE_RANK in $GYRE_EPOCH; test $GYRE_EPOCH$GYRE_RANK != 02 || kill -9 $$; test $GYRE_EPOCH = 1 || exec "
      "sleep 100";
  const Outcome outcome = RunToEnd(OnTwo(script, {"--max-restarts", "1", "--restart-delay", "0.05", "--settle", "0"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* line : {"2 in 0\n", "0 in 1\n", "1 in 1\n", "2 in 1\n"}) EXPECT_TRUE(Has(outcome.out, line)) << line;
  EXPECT_TRUE(Has(outcome.err, "rank 2 on b (pid ")) << outcome.err;
}

TEST_F(RestartTest, AHostThatWasLostIsWaitedFor) {
  // Rank 2 kills all that its host runs of gyrerun: its parent and that one's parent.
  const std::string script =
      "test $GYRE_EPOCH$GYRE_RANK != 02 || kill -9 $PPID $(ps -o ppid= -p $PPID); test $GYRE_EPOCH = 1 || exec sleep "
      "100";
  const Outcome outcome = RunToEnd(OnTwo(script, {"--max-restarts", "1", "--restart-delay", "0.05", "--settle", "0"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "host b: lost: ")) << outcome.err;
}

// --- SIGTERM ---

TEST_F(RestartTest, AJobThatTakesTermInOrderIsHalted) {
  const std::string script = "trap 'exit $((75 * (GYRE_RANK % 2)))' TERM; echo up; while :; do sleep 0.05; done";
  Gyrerun gyrerun(Here(2, {"--max-restarts", "3"}, script));
  ASSERT_TRUE(gyrerun.WaitForOutput("up\nup\n"));
  gyrerun.Signal(SIGTERM);
  const Outcome outcome = gyrerun.Wait(seconds(20));
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "ended by SIGTERM; all ranks ended in order; exit code 75\n")) << outcome.err;
}

TEST_F(RestartTest, AJobThatDoesNotIsNot) {
  for (const char* last : {"exit 1", "exec sleep 100"}) {
    const std::string script =
        "test $GYRE_RANK = 1 && { echo up; trap 'exit 1' TERM; while :; do sleep 0.05; done; }; "
        "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done";
    const std::string other =
        "test $GYRE_RANK = 1 && { echo up; exec sleep 100; }; "
        "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done";
    Gyrerun gyrerun(Here(2, {}, std::string(last) == "exit 1" ? script : other));
    ASSERT_TRUE(gyrerun.WaitForOutput("up\nup\n"));
    gyrerun.Signal(SIGTERM);
    EXPECT_EQ(gyrerun.Wait(seconds(20)).code, 128 + SIGTERM) << last;
  }
}

// --- The status file ---

TEST_F(RestartTest, TheStatusFileFollowsTheJob) {
  const std::string file = folder_.path() / "status";
  const auto status = [&] { return RunToEnd({"status", file}); };
  EXPECT_EQ(RunToEnd(Here(2, {"--max-restarts", "1", "--status-file", file}, "exit $((1 - GYRE_EPOCH))")).code, 0);
  const std::string completed = status().out;
  EXPECT_TRUE(completed.starts_with("COMPLETED since ")) << completed;
  EXPECT_TRUE(Has(completed, ", 2 ranks on 1 host, 1 restart\n")) << completed;
  EXPECT_EQ(RunToEnd(Here(1, {"--status-file", file}, "exit 75")).code, 75);
  EXPECT_TRUE(status().out.starts_with("HALTED since ")) << status().out;
  EXPECT_EQ(RunToEnd(OnTwo("exit 3", {"--status-file", file})).code, 3);
  const std::string failed = status().out;
  EXPECT_TRUE(failed.starts_with("FAILED since ")) << failed;
  EXPECT_TRUE(Has(failed, ", 3 ranks on 2 hosts, 0 restarts\nrank ")) << failed;
  EXPECT_TRUE(Has(failed, "exited with code 3")) << failed;
  for (const char* phase : {"  HALTED\n", "  RESUMED\n", "  PROCESSING\n", "  FAILED\n"}) {
    EXPECT_TRUE(Has(failed, phase)) << failed;
  }
  const Outcome nowhere = RunToEnd(Here(1, {"--status-file", "/no/such/folder/status"}, "echo up"));
  EXPECT_EQ(nowhere.code, 74) << nowhere.err;
  EXPECT_EQ(nowhere.out, "");
  EXPECT_EQ(RunToEnd({"status", "/no/such/file"}).code, 65);
  EXPECT_EQ(RunToEnd({"status"}).code, 64);
}

TEST_F(RestartTest, AStatusFileTellsThatItsGyrerunIsGone) {
  const std::string file = folder_.path() / "status";
  Gyrerun gyrerun(Here(1, {"--status-file", file}, "echo up; exec sleep 100"));
  ASSERT_TRUE(gyrerun.WaitForOutput("up\n"));
  EXPECT_FALSE(Has(RunToEnd({"status", file}).out, " is gone"));
  for (const pid_t child : ChildrenOf(gyrerun.pid())) kill(child, SIGKILL);
  EXPECT_EQ(gyrerun.Wait(seconds(20)).code, 137);
  EXPECT_TRUE(gyrerun.AllGone(seconds(10)));
  const std::string status = RunToEnd({"status", file}).out;
  EXPECT_TRUE(status.starts_with("PROCESSING since ") && Has(status, " is gone and has not said")) << status;
}

}  // namespace

}  // namespace gyre::launch
