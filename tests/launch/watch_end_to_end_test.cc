// Placement, reports, usage, stacks and cooldown of jobs that run, on this host and over agents.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "gtest/gtest.h"
#include "launch/usage_trace.h"
#include "remote_fixture.h"
#include "support/program.h"
#include "support/status_matchers.h"

namespace gyre::launch {

namespace {

using std::chrono::seconds;

class WatchTest : public RemoteTest {
 protected:
  std::string Read(const std::string& name) const {
    std::ifstream file(folder_.path() / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string Path(const std::string& name) const { return folder_.path() / name; }
};

TEST_F(WatchTest, RanksRunWhereTheyAreBound) {
  const std::string script = "sed -n 's/^Cpus_allowed_list:[[:space:]]*/may use /p' /proc/self/status";
  const Outcome here = RunToEnd({"-np", "1", "--bind-to", "core", "--report-bindings", "sh", "-c", script});
  ASSERT_EQ(here.code, 0) << here.err;
  const std::string cpus = here.out.substr(8, here.out.size() - 9);
  EXPECT_TRUE(Has(here.err, "rank 0: bound to core 0 (CPUs " + cpus + ")\n")) << here.err << here.out;
  const Outcome there =
      RunToEnd(Over("a:1,b:1", PlainShell(), {"--bind-to", "core", "--report-bindings"}, {"sh", "-c", script}));
  ASSERT_EQ(there.code, 0) << there.err;
  EXPECT_EQ(there.out, here.out + here.out);
  EXPECT_TRUE(Has(there.err, "host b: rank 1: bound to core 0 (CPUs " + cpus + ")\n")) << there.err;
}

TEST_F(WatchTest, AnOversubscribedHostIsNotBoundAndSaysSo) {
  const std::string ranks = std::to_string(std::thread::hardware_concurrency() + 1);
  const Outcome outcome = RunToEnd({"-np", ranks, "--bind-to", "core", "true"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(Has(outcome.err, "not bound: " + ranks + " ranks are more than the ")) << outcome.err;
}

TEST_F(WatchTest, SpreadPlacesRanksEvenly) {
  const Outcome outcome =
      RunToEnd(Over("a:2,b:2", PlainShell(), {"-np", "2", "--placement", "spread", "--dry-run"}, {"true"}));
  EXPECT_TRUE(Has(outcome.out, "host a: rank 0:") && Has(outcome.out, "host b: rank 1:")) << outcome.out;
}

// What rows of the trace say of each rank: the seconds that it spent with each activity, and how busy it was.
struct Share {
  double seconds = 0;
  double cpu_seconds = 0;
};

void ExpectPhases(const std::string& path, int ranks) {
  const auto rows = ReadUsageTrace(path);
  ASSERT_THAT(rows, support::IsOk());
  std::map<std::pair<int, std::string>, Share> shares;
  for (const UsageRow& row : *rows) {
    Share& share = shares[{row.rank, row.activity}];
    share.seconds += row.interval;
    share.cpu_seconds += row.interval * row.cpus;
    EXPECT_GT(row.memory, 1e5);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (const char* activity : {"loading", "training", "saving"}) {
      const Share share = shares[std::pair<int, std::string>(rank, activity)];
      // Each is half a second of work; how much of a processor it got is the machine's to say.
      EXPECT_GE(share.seconds, 0.3) << rank << activity;
      EXPECT_GT(share.cpu_seconds, 0.02) << rank << activity;
      EXPECT_LT(share.cpu_seconds, share.seconds * 1.5 + 0.1) << rank << activity;
    }
  }
}

void ExpectHistory(const std::string& status) {
  size_t at = status.find("\"history\"");
  for (const char* phase : {"QUEUED", "DEPLOYING", "PROCESSING", "DOWNLOADING", "PROCESSING", "STORING", "COMPLETED"}) {
    at = status.find(std::string("\"") + phase + "\"", at);
    ASSERT_NE(at, std::string::npos) << phase << "\n" << status;
  }
}

TEST_F(WatchTest, AProgramsReportsReachStatusMetricsAndTrace) {
  const std::vector<std::string> files = {"--status-file", Path("status"), "--metrics-file",   Path("metrics"),
                                          "--trace-usage", Path("trace"),  "--trace-interval", "0.1"};
  std::vector<std::string> here = {"-np", "2"};
  here.insert(here.end(), files.begin(), files.end());
  here.insert(here.end(), {JOB_RANK_PATH, "report"});
  for (const std::vector<std::string>& arguments :
       {here, Over("a:1,b:1", PlainShell(), files, {JOB_RANK_PATH, "report"})}) {
    const Outcome outcome = RunToEnd(arguments);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    ExpectHistory(Read("status"));
    const std::string metrics = Read("metrics");
    EXPECT_TRUE(Has(metrics, ",phase=\"COMPLETED\"} 1\n") && Has(metrics, "gyre_job_exit_code{")) << metrics;
    EXPECT_TRUE(Has(metrics, ",rank=\"last\"} 9\n") && Has(metrics, "gyre_job_loss{")) << metrics;
    ExpectPhases(Path("trace"), 2);
  }
}

// Rank 1 is known to the driver, with 77 bytes and a quarter of a device.
TEST_F(WatchTest, TheTraceHasGpus) {
  const std::string script = "test $GYRE_RANK = 0 || echo 1 $$ 77 25 >$FAKE_NVML; sleep 0.5";
  setenv("LD_LIBRARY_PATH", FAKE_NVML_FOLDER, 1);
  setenv("FAKE_NVML", Path("gpu").c_str(), 1);
  const Outcome outcome =
      RunToEnd({"-np", "2", "--trace-usage", Path("trace"), "--trace-interval", "0.1", "sh", "-c", script});
  for (const char* name : {"LD_LIBRARY_PATH", "FAKE_NVML"}) unsetenv(name);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto rows = ReadUsageTrace(Path("trace"));
  ASSERT_THAT(rows, support::IsOk());
  const auto has = [](const UsageRow& row) { return row.rank == 1 && row.gpus == 0.25 && row.gpu_memory == 77; };
  EXPECT_TRUE(std::ranges::any_of(*rows, has)) << Read("trace");
}

TEST_F(WatchTest, WithoutADriverTheTraceHasNoGpusAndThatIsSaidOnce) {
  const Outcome outcome =
      RunToEnd({"-np", "2", "--trace-usage", Path("trace"), "--trace-interval", "0.05", "sleep", "0.3"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  if (outcome.err.empty()) GTEST_SKIP() << "this machine has a driver";
  EXPECT_EQ(outcome.err.find("--trace-usage: without GPUs: "), outcome.err.rfind("--trace-usage: "));
  EXPECT_TRUE(Has(outcome.err, "without GPUs: ")) << outcome.err;
  EXPECT_TRUE(Has(Read("trace"), ",,\n")) << Read("trace");
}

TEST_F(WatchTest, AProcessThatIsNotThereHasNoStacks) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(gone), &info, WEXITED | WNOWAIT), 0);  // its number stays taken
  support::Program sleeper({"sleep", "100"});
  const Outcome outcome = RunToEnd({"stacks", "rank 7=" + std::to_string(gone), std::to_string(sleeper.pid())});
  EXPECT_EQ(outcome.code, 69) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "gyrerun: stacks: rank 7, process " + std::to_string(gone) + " is not there; try: "));
  EXPECT_TRUE(Has(outcome.out, "process " + std::to_string(sleeper.pid()) + " (")) << "the others are looked at";
  EXPECT_EQ(waitpid(gone, nullptr, 0), gone);
}

TEST_F(WatchTest, TheStacksOfRanksThatHang) {
  const std::vector<std::string> hang = {"--stack-on-hang", "0.3"};
  const std::vector<std::string> here = {"-np", "2", "--stack-on-hang", "0.3", "sleep", "100"};
  for (const auto& arguments : {here, Over("a:1,b:1", PlainShell(), hang, {"sleep", "100"})}) {
    Gyrerun gyrerun(arguments, {.join_output = true});
    EXPECT_TRUE(gyrerun.WaitForOutput("nothing moves any more"));
    const bool hosts = arguments != here;
    EXPECT_TRUE(gyrerun.WaitForOutput(hosts ? "host a: rank 0, process " : "gyrerun: rank 0, process ", seconds(60)));
    EXPECT_TRUE(gyrerun.WaitForOutput(hosts ? "host b: rank 1, process " : "gyrerun: rank 1, process ", seconds(60)));
    gyrerun.Signal(SIGTERM);
    const Outcome outcome = gyrerun.Wait();
    EXPECT_EQ(outcome.code, 128 + SIGTERM);
    EXPECT_TRUE(Has(outcome.out, "nanosleep") || Has(outcome.out, "waits in ")) << outcome.out;
    EXPECT_TRUE(gyrerun.AllGone(seconds(5)));
  }
}

TEST_F(WatchTest, TheLastLinesOfTheRankThatFailedFirst) {
  const Outcome outcome = RunToEnd({"-np", "2", "--ranks-filter", "0", "sh", "-c",
                                    "test $GYRE_RANK = 0 || { echo cause one >&2; echo cause two >&2; exit 3; }"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(Has(outcome.err, "the last lines of rank 1:\ngyrerun:   cause one\ngyrerun:   cause two\n"))
      << outcome.err;
  EXPECT_FALSE(Has(outcome.err, "\ncause")) << outcome.err;
}

TEST_F(WatchTest, ALostHostIsLeftOutOfTheNextRun) {
  // Of the agent's two processes a rank's parent is the lower one; the first host's is killed in the first run.
  const std::string script =
      "test $GYRE_EPOCH$GYRE_RANK = 00 && kill -9 $PPID; test $GYRE_EPOCH = 0 && exec sleep 100; echo again";
  const Outcome outcome = RunToEnd(
      Over("a:1,b:1,c:1", PlainShell(),
           {"-np", "2", "--max-restarts", "1", "--restart-delay", "0.05", "--host-cooldown", "60", "--tag-output"},
           {"sh", "-c", script}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "host a: left out of the next run")) << outcome.err;
  EXPECT_TRUE(Has(outcome.out, "[0@b]<stdout>:again\n") && Has(outcome.out, "[1@c]<stdout>:again\n")) << outcome.out;
}

TEST_F(WatchTest, ATerminalHasAStatusLine) {
  const std::string command = std::string("TERM=xterm exec " GYRERUN_PATH " -np 2 ") + JOB_RANK_PATH + " report";
  support::Program run({"script", "-qefc", command, "/dev/null"});
  ASSERT_TRUE(run.WaitFor(seconds(30)));
  EXPECT_TRUE(Has(run.output(), "gyrerun: 2 of 2 ranks up, ")) << run.output();
  EXPECT_TRUE(Has(run.output(), "\r\x1b[K")) << run.output();
}

}  // namespace

}  // namespace gyre::launch
