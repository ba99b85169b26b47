// gyrerun over hosts as a whole: everything is as on one host.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "remote_fixture.h"

namespace gyre::launch {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(RemoteTest, RanksFillTheHostsInOrder) {
  const std::string shell = Script("rsh", "HOST_OF_TEST=$1; export HOST_OF_TEST; shift; exec sh -c \"$*\"");
  const std::string hostfile = folder_.path() / "hosts";
  std::ofstream(hostfile) << "a slots=2 # two\nb:3\n";
  const Outcome outcome = RunToEnd({"--hostfile", hostfile, "-np", "4", "--remote-shell", shell, "--interface", "lo",
                                    "sh", "-c", "echo $HOST_OF_TEST $GYRE_RANK of $GYRE_SIZE"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* line : {"a 0 of 4\n", "a 1 of 4\n", "b 2 of 4\n", "b 3 of 4\n"}) EXPECT_TRUE(Has(outcome.out, line));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(RemoteTest, AllSlotsByDefault) {
  const Outcome outcome = RunToEnd(OnTwo("echo $GYRE_RANK"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 3);
}

TEST_F(RemoteTest, Identity) {
  const Outcome outcome = RunToEnd(OnTwo(
      "echo ${GYRE_STORE%:*} ${#GYRE_JOB_ID} $GYRE_INTERFACE $A; od -An -tx1 /proc/self/fd/${GYRE_SECRET_FD%,*} | tr "
      "-d ' \\n'; echo; echo $GYRE_STORE $GYRE_JOB_ID",
      {"-x", "A=b c"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream stream(outcome.out);
  std::map<std::string, int> lines;
  for (std::string line; std::getline(stream, line);) ++lines[line];
  EXPECT_EQ(lines["127.0.0.1 16 lo b c"], 3) << outcome.out;
  EXPECT_EQ(lines.size(), 3u) << outcome.out;  // one secret, one store, one id for all
}

TEST_F(RemoteTest, RanksAlsoHaveTheirNumbersAsOthersNameThem) {
  const std::string script =
      "echo $OMPI_COMM_WORLD_RANK $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
      "$HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE $GROUP_RANK";
  const Outcome outcome = RunToEnd(OnTwo(script, {"--max-np", "9", "-x", "GROUP_RANK=mine"}));
  for (const char* line : {"0 0/3 0/2 0/2 mine\n", "1 1/3 1/2 0/1 mine\n", "2 2/3 0/1 1/2 mine\n"}) {
    EXPECT_TRUE(Has(outcome.out, line)) << line << outcome.out << outcome.err;
  }
  EXPECT_EQ(RunToEnd({"-np", "1", "sh", "-c", script}).out, "0 0/1 0/1 0/1 0\n");
}

TEST_F(RemoteTest, ExportedVariablesTravelAndOthersDoNot) {
  const std::string shell = Script("rsh", "shift; unset TRAVELS STAYS GYRE_TIMEOUT; exec sh -c \"$*\"");
  for (const char* name : {"TRAVELS", "STAYS", "GYRE_TIMEOUT"}) setenv(name, "17", 1);
  const Outcome outcome =
      RunToEnd(Over("a", shell, {"-x", "TRAVELS"}, {"sh", "-c", "echo [$TRAVELS] [$STAYS] [$GYRE_TIMEOUT]"}));
  for (const char* name : {"TRAVELS", "STAYS", "GYRE_TIMEOUT"}) unsetenv(name);
  EXPECT_EQ(outcome.out, "[17] [] [17]\n") << outcome.err;
}

TEST_F(RemoteTest, TheSecretIsNowhereToBeSeen) {
  const std::string shell =
      Script("rsh", "tr '\\0' '\\n' </proc/$$/environ >&2; echo \"$@\" >&2; shift; exec sh -c \"$*\"");
  const Outcome outcome =
      RunToEnd(Over("a,b", shell, {"--verbose"},
                    {"sh", "-c",
                     "s=$(od -An -tx1 -v /proc/self/fd/${GYRE_SECRET_FD%,*} | tr -d ' \\n'); echo secret $s; "
                     "for p in $$ $PPID; do for f in cmdline environ; do "
                     "case $(od -An -tx1 -v /proc/$p/$f | tr -d ' \\n') in *$s*) exit 4;; esac; done; done"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string secret = outcome.out.substr(7, 64);
  ASSERT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_FALSE(Has(outcome.err, secret));
}

TEST_F(RemoteTest, OutputIsTaggedWithRankAndHost) {
  const Outcome outcome = RunToEnd(OnTwo("echo out; echo err >&2; printf unfinished", {"--tag-output"}));
  for (const char* line : {"[0@a]<stdout>:out\n", "[1@a]<stdout>:unfinished\n", "[2@b]<stdout>:out\n"}) {
    EXPECT_TRUE(Has(outcome.out, line)) << outcome.out;
  }
  EXPECT_TRUE(Has(outcome.err, "[2@b]<stderr>:err\n")) << outcome.err;
}

TEST_F(RemoteTest, LinesAreNeverTornAndFilesHoldEachRanksOwn) {
  const std::string dir = folder_.path() / "out";
  const Outcome outcome =
      RunToEnd(OnTwo("yes $GYRE_RANK-abcdefghijklmnopqrstuvwxyz-$GYRE_RANK | head -n 60000", {"--output-dir", dir}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream stream(outcome.out);
  int lines = 0;
  for (std::string line; std::getline(stream, line); ++lines) {
    const std::string rank = line.substr(0, 1);
    ASSERT_EQ(line, absl::StrCat(rank, "-abcdefghijklmnopqrstuvwxyz-", rank));
  }
  EXPECT_EQ(lines, 180'000);
  std::ifstream file(dir + "/rank.2.out");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}).size(), 60'000u * 31);
}

TEST_F(RemoteTest, BytesPassUnchangedBothWays) {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += static_cast<char>((i * 2654435761u) >> 13);
  const Outcome outcome = RunToEnd(Over("a,b", PlainShell(), {}, {"cat"}), {.input = text});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out == text) << outcome.out.size();  // rank 1 has read /dev/null
}

TEST_F(RemoteTest, InputThatNobodyReadsIsNoHindrance) {
  const Outcome outcome = RunToEnd(OnTwo("exit 0"), {.input = std::string(1'000'000, 'x')});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(RemoteTest, TheFailedRanksCodeAndHost) {
  const Outcome outcome = RunToEnd(OnTwo("test $GYRE_RANK != 2 || exit 42; sleep 0.2"));
  EXPECT_EQ(outcome.code, 42) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "gyrerun: rank 2 on b (pid ")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "exited with code 42")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "2 other ranks ended after it; exit code 42\n")) << outcome.err;
}

TEST_F(RemoteTest, ARankKilledByASignalIs128PlusIt) {
  const Outcome outcome = RunToEnd(OnTwo("test $GYRE_RANK = 0 || kill -9 $$; sleep 0.3; exit 1"));
  EXPECT_EQ(outcome.code, 137) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "was killed by signal 9 (Killed)")) << outcome.err;
}

TEST_F(RemoteTest, SurvivorsThatGoOnAreToldAfterSettleAndKilledAfterGrace) {
  const Outcome outcome =
      RunToEnd(OnTwo("test $GYRE_RANK = 2 && exit 5; trap 'echo told' TERM; while :; do sleep 0.05; done",
                     {"--settle", "0.3", "--grace", "0.5"}));
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_EQ(outcome.out, "told\ntold\n");
  EXPECT_GE(outcome.took, milliseconds(800));
}

TEST_F(RemoteTest, AStoppedRankIsNamedAndNotWaitedFor) {
  const Outcome outcome =
      RunToEnd(OnTwo("test $GYRE_RANK = 0 && kill -STOP $$; sleep 0.5; exit 9", {"--settle", "60", "--grace", "1"}));
  EXPECT_EQ(outcome.code, 9) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "stopped then: rank 0 (pid ")) << outcome.err;
  EXPECT_LT(outcome.took, seconds(20));
}

TEST_F(RemoteTest, Timeout) {
  const Outcome outcome = RunToEnd(OnTwo("sleep 100", {"--timeout", "1"}));
  EXPECT_EQ(outcome.code, 124) << outcome.err;
}

TEST_F(RemoteTest, ExitCodesOfProgramsThatCannotBe) {
  const Outcome missing = RunToEnd(Over("a:2,b", PlainShell(), {}, {"no-such-program-anywhere"}));
  EXPECT_EQ(missing.code, 127) << missing.err;
  EXPECT_TRUE(Has(missing.err, ": program: no-such-program-anywhere was not found along PATH; the job was not started"))
      << missing.err;
  EXPECT_EQ(RunToEnd(Over("a:2,b", PlainShell(), {}, {"/etc/passwd"})).code, 126);
}

class RemoteSignalTest : public RemoteTest, public testing::WithParamInterface<int> {};

TEST_P(RemoteSignalTest, EndsTheJobCleanly) {
  Gyrerun gyrerun(OnTwo("trap 'echo caught; exit 0' INT TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n"));
  gyrerun.Signal(GetParam());
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 128 + GetParam()) << outcome.err;
  EXPECT_TRUE(Has(outcome.out, "caught\ncaught\ncaught\n")) << outcome.out;
  EXPECT_TRUE(gyrerun.Alive().empty());
}

INSTANTIATE_TEST_SUITE_P(Signals, RemoteSignalTest, testing::Values(SIGINT, SIGTERM));

TEST_F(RemoteTest, ASecondInterruptKillsAtOnce) {
  Gyrerun gyrerun(OnTwo("trap 'echo no' INT; echo ready; while :; do sleep 0.05; done", {"--grace", "60"}));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n"));
  gyrerun.Signal(SIGINT);
  ASSERT_TRUE(gyrerun.WaitForOutput("no\nno\nno\n"));
  usleep(300'000);
  gyrerun.Signal(SIGINT);
  EXPECT_EQ(gyrerun.Wait().code, 130);
  EXPECT_TRUE(gyrerun.Alive().empty());
}

TEST_F(RemoteTest, UserSignalsArePassedOn) {
  Gyrerun gyrerun(OnTwo("trap 'echo one; exit 0' USR1; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n"));
  gyrerun.Signal(SIGUSR1);
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(Has(outcome.out, "one\none\none\n")) << outcome.out;
}

TEST_F(RemoteTest, AReaderThatHangsDoesNotKeepSignalsOut) {
  Gyrerun gyrerun(Over("a:2,b", PlainShell(), {}, {"yes"}), {.read_output = false});
  usleep(700'000);  // long enough to fill every buffer there is
  gyrerun.Signal(SIGTERM);
  const Outcome outcome = gyrerun.Wait();
  EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
  EXPECT_LT(outcome.took, seconds(25));
  EXPECT_TRUE(gyrerun.Alive().empty());
}

TEST_F(RemoteTest, WithoutReaderTheJobEnds) {
  const Outcome outcome = RunToEnd(OnTwo("while echo line; do sleep 0.01; done; sleep 100"), {.close_output = true});
  EXPECT_EQ(outcome.code, 128 + SIGPIPE) << outcome.err;
}

TEST_F(RemoteTest, BannersAndRemoteErrorsPass) {
  const std::string shell = Script("rsh",
                                   "echo Welcome to $1; echo no newline, and; printf '== gyre'; "
                                   "echo careful >&2; shift; exec sh -c \"$*\"");
  const Outcome outcome = RunToEnd(Over("a,b", shell, {}, {"echo", "hi"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "hi\nhi\n");
  EXPECT_TRUE(Has(outcome.err, "gyrerun: host b: careful\n")) << outcome.err;
  EXPECT_FALSE(Has(outcome.err, "Welcome")) << outcome.err;
  EXPECT_TRUE(Has(RunToEnd(Over("a,b", shell, {"--verbose"}, {"true"})).err, "host b: it greets with: Welcome to b\n"));
}

TEST_F(RemoteTest, AHostThatIsNotYetThereIsTriedAgain) {
  const std::string shell =
      Script("rsh", "test $1 = b && ! mkdir " + (folder_.path() / "seen").string() +
                        " 2>/dev/null || test $1 = a || { echo refused >&2; exit 255; }; shift; exec sh -c \"$*\"");
  const Outcome outcome = RunToEnd(Over("a,b", shell, {}, {"echo", "hi"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "hi\nhi\n");
}

TEST_F(RemoteTest, ASingleLocalhostNeedsNoRemoteShell) {
  const Outcome outcome = RunToEnd({"-H", "localhost:3", "sh", "-c", "echo $GYRE_SIZE"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "3\n3\n3\n");
}

TEST_F(RemoteTest, LoopbackHostsMeetAtLoopback) {
  const Outcome outcome =
      RunToEnd({"-H", "localhost:1,127.0.0.1:1", "--remote-shell", PlainShell(), "sh", "-c", "echo ${GYRE_STORE%:*}"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "127.0.0.1\n127.0.0.1\n");
}

TEST_F(RemoteTest, RanksRunInTheLaunchersFolder) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  const Outcome outcome = RunToEnd(Over("a", Script("rsh", "shift; cd /; exec sh -c \"$*\""), {}, {"pwd"}));
  std::filesystem::current_path(before);
  EXPECT_EQ(outcome.out, std::filesystem::canonical(folder_.path()).string() + "\n") << outcome.err;
}

}  // namespace

}  // namespace gyre::launch
