// What keeps a job over hosts from its start: exactly one line that names host, stage, cause and what to try; the
// documented exit code; and nothing left behind.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "gtest/gtest.h"
#include "gyre/version.h"
#include "remote_fixture.h"

namespace gyre::launch {

namespace {

using std::chrono::seconds;

// What gyrerun says to try where hosts could not be reached.
std::string ByHand(const std::string& shell, const std::string& host) {
  return "; try: " + shell + " " + host + " " GYRERUN_PATH " --agent";
}

// How often a host is tried depends on the machine.
Outcome WithoutAttempts(Outcome outcome) {
  outcome.err = std::regex_replace(outcome.err, std::regex(" \\([0-9]+ attempts\\)"), "");
  return outcome;
}

constexpr char kUnknown[] =
    "case $1 in a*) shift; exec sh -c \"$*\" ;; esac; "
    "echo 'ssh: try -v' >&2; echo \"ssh: Could not resolve hostname $1: Name or service not known\" >&2; exit 255";

// --- The five that everybody meets, to the letter ---

TEST_F(RemoteTest, AWrongHostfile) {
  const std::string hostfile = folder_.path() / "hosts";
  std::ofstream(hostfile) << "a slots=2\nb slots=lots\n";
  ExpectLine(RunToEnd({"--hostfile", hostfile, "true"}), 65,
             "hostfile " + hostfile +
                 ":2: host b: \"lots\" is no number of slots (1 to 4096); try: a line such as \"a slots=2\"");
  ExpectLine(
      RunToEnd({"--hostfile", hostfile + ".none", "true"}), 65,
      "hostfile " + hostfile + ".none: cannot be read (No such file or directory); try: ls -l " + hostfile + ".none");
  ExpectRefusal(RunToEnd({"-H", "a:x", "true"}), 64, {"-H: host a: \"x\"", "; try: "});
  ExpectRefusal(RunToEnd({"-H", "a:2,b", "-np", "4", "true"}), 64, {"-np 4 is more than the 3 slots", "; try: "});
}

TEST_F(RemoteTest, AHostfileWithWhatIsNoText) {
  const std::string hostfile = folder_.path() / "hosts";
  std::ofstream(hostfile) << "a\x1b[2J slots=2\n";
  ExpectLine(RunToEnd({"--hostfile", hostfile, "true"}), 65,
             "hostfile " + hostfile + ":1: \"a [2J\" is no name of a host; try: a line such as \"a slots=2\"");
  std::ofstream(hostfile) << "a " << std::string(100'000, 'x') << "\n";
  EXPECT_LT(RunToEnd({"--hostfile", hostfile, "true"}).err.size(), 1000u);
}

TEST_F(RemoteTest, AnUnknownHost) {
  const std::string shell = Script("rsh", kUnknown);
  const Outcome outcome = RunToEnd(Over("a:2,b", shell, {"--start-timeout", "3"}, {"echo", "started"}));
  ExpectLine(WithoutAttempts(outcome), 69,
             "host b: resolve: exited with code 255: ssh: Could not resolve hostname b: Name or service not known"
             "; 1 of 2 hosts were not ready within --start-timeout 3 s; the job was not started" +
                 ByHand(shell, "b") + ", or a longer --start-timeout");
  EXPECT_TRUE(Has(outcome.err, " attempts); 1 of 2")) << outcome.err;
  EXPECT_GE(outcome.took, seconds(3));
}

TEST_F(RemoteTest, ARefusedPort) {
  const std::string shell =
      Script("rsh", "echo \"ssh: connect to host ${1#*@} port 22: Connection refused\" >&2; exit 255");
  const Outcome outcome = RunToEnd(Over("me@b,c", shell, {"--start-timeout", "1.5"}, {"true"}));
  ExpectLine(WithoutAttempts(outcome), 69,
             "hosts me@b, c: connect: exited with code 255: ssh: connect to host b port 22: Connection refused"
             "; 2 of 2 hosts were not ready within --start-timeout 1.5 s; the job was not started" +
                 ByHand(shell, "me@b") + ", or a longer --start-timeout");
}

TEST_F(RemoteTest, AnotherVersion) {
  const std::string shell = Script("rsh", "exec " BAD_AGENT_PATH " version");
  ExpectLine(RunToEnd(Over("b", shell, {}, {"true"})), 69,
             "host b: agent: gyrerun is version 0.0.0-other there and " GYRE_VERSION_STRING
             " here; the job was not started; try: --remote-gyrerun with the path of this version there");
}

TEST_F(RemoteTest, AHostThatIsGoneWhenTheLastOneIsReady) {
  const std::string file = folder_.path() / "pid";
  const std::string shell = Script("rsh", "if [ $1 = a ]; then exec " BAD_AGENT_PATH " outlives " + file +
                                              "; fi; exec " BAD_AGENT_PATH " leaves " + file);
  const Outcome outcome = RunToEnd(Over("a,b", shell, {}, {"true"}));
  EXPECT_EQ(outcome.code, 69) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("gyrerun: host b: ")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "the job was not started")) << outcome.err;
}

// --- Several hosts, one line ---

TEST_F(RemoteTest, HostsInTheSameTrouble) {
  const std::string shell =
      Script("rsh",
             "case $1 in a) shift; exec sh -c \"$*\" ;; b) touch \"$0.b\" ;; "
             "c) until [ -e \"$0.b\" ]; do sleep 0.01; done; sleep 0.05 ;; esac; exec " BAD_AGENT_PATH " version");
  ExpectLine(RunToEnd(Over("a,b:4,c", shell, {}, {"true"})), 69,
             "hosts b, c: agent: gyrerun is version 0.0.0-other there and " GYRE_VERSION_STRING
             " here; the job was not started; try: --remote-gyrerun with the path of this version there");
}

TEST_F(RemoteTest, ManyUnknownHosts) {
  std::string hosts = "a";
  std::string named;
  for (int i = 1; i <= 20; ++i) hosts += ",n" + std::to_string(i);
  for (int i = 1; i <= 16; ++i) named += (i > 1 ? ", n" : "n") + std::to_string(i);
  const std::string shell = Script("rsh", kUnknown);
  ExpectRefusal(RunToEnd(Over(hosts, shell, {"--start-timeout", "3"}, {"true"})), 69,
                {"hosts " + named + " and 4 more: resolve: exited with code 255: ssh: Could not resolve hostname n1: ",
                 "; 20 of 21 hosts were not ready within --start-timeout 3 s; ", ByHand(shell, "n1")});
}

// What failed first comes first, and decides on the exit code.
TEST_F(RemoteTest, HostsInDifferentTroubles) {
  // Host b's shell ends when gyrerun, having heard of b's trouble, kills it; host a waits for that.
  const std::string shell_of_b = folder_.path() / "shell-of-b";
  const std::string shell =
      Script("rsh", "case $1 in b) echo $$ > " + shell_of_b +
                        "; shift; sh -c \"$*\"; exec sleep 100 ;; a) until pid=$(cat " + shell_of_b +
                        ") && test \"$pid\" && ! kill -0 $pid; do sleep 0.02; done 2>&-; "
                        "echo Permission denied >&2; exit 255 ;; esac; echo Connection refused >&2; exit 255");
  const std::string gone = "/no/such/program";
  ExpectLine(WithoutAttempts(RunToEnd(Over("a,b,c", shell, {}, {gone}))), 127,
             "host b: program: " + gone +
                 " does not exist; host a: login: exited with code 255: Permission denied; host c: connect: "
                 "exited with code 255: Connection refused; the job was not started; try: ls -l " +
                 gone);
}

// A host that takes its time, and might well get ready, does not hold up the verdict.
TEST_F(RemoteTest, ASlowHostIsNotWaitedFor) {
  const Outcome outcome = RunToEnd(Over("a,b", Script("rsh", "test $1 = a && exec sleep 100; exit 3"), {}, {"true"}));
  ExpectRefusal(outcome, 69, {"gyrerun: host b: remote shell: exited with code 3; the job was not started; try: "});
  EXPECT_LT(outcome.took, seconds(10));
}

TEST_F(RemoteTest, ARemoteShellThatSaysNothing) {
  const std::string shell = Script("rsh", "exec sleep 100");
  ExpectLine(
      RunToEnd(Over("a,b", shell, {"--start-timeout", "0.5"}, {"true"})), 69,
      "hosts a, b: agent: no word of it yet; 2 of 2 hosts were not ready within --start-timeout 0.5 s; the job was "
      "not started" +
          ByHand(shell, "a") + ", or a longer --start-timeout");
}

// --- The table of all hosts, where time has run out or it was asked for ---

TEST_F(RemoteTest, AHostThatNeverComesIsInTheTable) {
  const std::string mark = folder_.path() / "started";
  const std::string shell = Script("rsh", kUnknown);
  const Outcome outcome = RunToEnd(Over("a:2,b,a2", shell, {"--start-timeout", "2"}, {"touch", mark}));
  ExpectRefusal(outcome, 69, {"host b: resolve: exited", "1 of 3 hosts were not ready"});
  EXPECT_TRUE(
      std::regex_search(outcome.err, std::regex("\ngyrerun:   b   rank 2     resolve: exited with code 255: ssh: "
                                                "Could not resolve .* \\([0-9]+ attempts?\\)\n"
                                                "gyrerun:   a   ranks 0-1  ready: [0-9]+ CPUs?, .* memlock .*\n"
                                                "gyrerun:   a2  rank 3     ready: .*\n$")))
      << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST_F(RemoteTest, AHostThatComesLateIsWaitedFor) {
  const std::string attempts = folder_.path() / "attempts";
  const std::string shell =
      Script("rsh", "test $1 = b && echo >> " + attempts + " && test $(wc -l < " + attempts +
                        ") -lt 4 && { echo 'ssh: connect to host b port 22: Connection refused' >&2; exit 255; }; "
                        "shift; exec sh -c \"$*\"");
  const Outcome outcome = RunToEnd(Over("a,b", shell, {}, {"sh", "-c", "echo $GYRE_RANK"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.size(), 4u) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST_F(RemoteTest, APreflightTellsOfAllHostsAndStartsNothing) {
  const std::string mark = folder_.path() / "started";
  const Outcome outcome = RunToEnd(Over("a:1000,b", PlainShell(), {"--preflight-only"}, {"touch", mark}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part :
       {"gyrerun: all 2 hosts are ready for 1001 ranks; --preflight-only: nothing was started\n",
        "gyrerun:   a  ranks 0-999  ready: ", "gyrerun:   b  rank 1000    ready: ", "gyrerun: host a: 1000 ranks on ",
        "gyrerun: host b: the same machine as a\n", "gyrerun: transport: pairs on hosts a, b: shared memory\n"}) {
    EXPECT_TRUE(Has(outcome.err, part)) << part << outcome.err;
  }
  EXPECT_FALSE(std::filesystem::exists(mark));
  const Outcome failed = RunToEnd(Over("a,b", PlainShell(), {"--preflight-only"}, {"/no/such/program"}));
  EXPECT_EQ(failed.code, 127) << failed.err;
  EXPECT_TRUE(Has(failed.err, "gyrerun:   a  rank 0  program: /no/such/program does not exist")) << failed.err;
}

// --- What hosts say is in that line, and else only with --verbose ---

TEST_F(RemoteTest, GreetingsDoNotHideTheLine) {
  const std::string shell =
      Script("rsh", "echo welcome to $1 >&2; test $1 = b && { echo no way >&2; exit 3; }; shift; exec sh -c \"$*\"");
  const auto over = [&](std::vector<std::string> options) {
    return RunToEnd(Over("a,b", shell, std::move(options), {"true"}));
  };
  ExpectRefusal(over({}), 69, {"host b: remote shell: exited with code 3: no way; the job was not started; try: "});
  const Outcome verbose = over({"--verbose"});
  EXPECT_TRUE(Has(verbose.err, "gyrerun: host b: it said: welcome to b\n")) << verbose.err;
  const Outcome well = RunToEnd(Over("a", shell, {}, {"true"}));
  EXPECT_EQ(well.code, 0);
  EXPECT_EQ(well.err, "gyrerun: host a: welcome to a\n");
}

TEST_F(RemoteTest, AnAgentCannotAddLines) {
  ExpectRefusal(
      RunToEnd(Over("b", Script("rsh", "exec " BAD_AGENT_PATH " lines"), {}, {"true"})), 69,
      {"host b: agent: gyrerun is version 1 gyrerun: all is well xxx", "xxx...; the job was not started; try: "});
}

// --- All else ---

TEST_F(RemoteTest, NoRemoteShell) {
  ExpectRefusal(RunToEnd(Over("a,b", "no-such-shell", {}, {"true"})), 69,
                {"remote shell: no-such-shell was not found", "the job was not started", "; try: "});
}

TEST_F(RemoteTest, WhatWillNotPassIsNotTriedAgain) {
  const std::string shell = Script("rsh", "echo me@$1: Permission denied '(publickey)'. >&2; exit 255");
  const Outcome outcome = RunToEnd(Over("b", shell, {}, {"true"}));
  ExpectRefusal(outcome, 69, {"host b: login: exited with code 255: me@b: Permission denied", "; try: " + shell});
  EXPECT_LT(outcome.took, seconds(10));
}

TEST_F(RemoteTest, PreflightLeavesAnEarlierTimelineAlone) {
  const std::string trace = folder_.path() / "trace";
  std::ofstream(trace) << "[1]";
  const Outcome outcome = RunToEnd(Over("b", PlainShell(), {"--preflight-only", "--timeline", trace}, {"true"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(Has(outcome.err, "--timeline")) << outcome.err;
  std::ifstream file(trace);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "[1]");
}

TEST_F(RemoteTest, LastWordsWithoutALineEnd) {
  ExpectRefusal(RunToEnd(Over("b", Script("rsh", "printf 'no way' >&2; exit 3"), {}, {"true"})), 69,
                {"host b: remote shell: exited with code 3: no way; the job was not started; try: "});
}

TEST_F(RemoteTest, GyrerunIsNotThere) {
  const Outcome outcome = RunToEnd(Over("b", PlainShell(), {"--remote-gyrerun", "/no/such/gyrerun"}, {"true"}));
  ExpectRefusal(outcome, 69, {"host b: agent: /no/such/gyrerun cannot be run there", "--remote-gyrerun"});
}

TEST_F(RemoteTest, ARemoteShellThatBabbles) {
  const Outcome outcome = RunToEnd(Over("b", Script("rsh", "exec yes"), {}, {"true"}));
  ExpectRefusal(outcome, 69, {"host b: agent: what it says is not understood: 64 KiB came", "; try: "});
}

TEST_F(RemoteTest, NoSuchFolderThere) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path gone = folder_.path() / "gone";
  std::filesystem::create_directory(gone);
  const std::string shell = Script("rsh", "cd /; rmdir " + gone.string() + "; shift; exec sh -c \"$*\"");
  std::filesystem::current_path(gone);
  const Outcome outcome = RunToEnd(Over("b", shell, {}, {"true"}));
  std::filesystem::current_path(before);
  ExpectRefusal(outcome, 69, {"host b: working directory: ", "/gone", "No such file", "; try: "});
}

TEST_F(RemoteTest, NoAddressForTheStore) {
  ExpectRefusal(RunToEnd({"-H", "no-such-host.invalid,b", "--remote-shell", PlainShell(), "true"}), 69,
                {"host no-such-host.invalid: store: ", "; try: --interface"});
  ExpectRefusal(RunToEnd({"-H", "a,b", "--interface", "nonesuch9", "--remote-shell", PlainShell(), "true"}), 69,
                {"host a: store: \"nonesuch9\" is no interface"});
}

TEST_F(RemoteTest, NoneStartsUnlessAllCan) {
  const std::string mark = folder_.path() / "started";
  const std::string shell = Script("rsh", "test $1 = b && { sleep 0.3; exit 3; }; shift; exec sh -c \"$*\"");
  ExpectRefusal(RunToEnd(Over("a,b", shell, {}, {"touch", mark})), 69, {"host b: remote shell: exited with code 3"});
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST_F(RemoteTest, AnInterruptBeforeTheStart) {
  Gyrerun gyrerun(Over("a,b", Script("rsh", "echo begun >&2; exec sleep 100"), {}, {"true"}));
  usleep(300'000);
  gyrerun.Signal(SIGINT);
  const Outcome outcome = gyrerun.Wait(seconds(20));
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_TRUE(gyrerun.Alive().empty());
}

}  // namespace

}  // namespace gyre::launch
