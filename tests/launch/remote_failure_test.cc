// What goes wrong between gyrerun and its hosts: one line that names host, stage, cause and what to try; the documented
// exit code; and nothing left behind.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>

#include "gtest/gtest.h"
#include "launch/agent_protocol.h"
#include "launch/descendants.h"
#include "remote_fixture.h"
#include "support/program.h"

namespace gyre::launch {

namespace {

using std::chrono::seconds;

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

void ExpectRefusal(const Outcome& outcome, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  for (const std::string& part : parts) EXPECT_TRUE(Has(FirstLine(outcome.err), part)) << part << "\n" << outcome.err;
}

// --- Before the start ---

TEST_F(RemoteTest, HostfileAndSlots) {
  const std::string hostfile = folder_.path() / "hosts";
  std::ofstream(hostfile) << "a slots=2\nb slots=lots\n";
  ExpectRefusal(RunToEnd({"--hostfile", hostfile, "true"}), 65, {hostfile + ":2: \"lots\"", "; try: "});
  ExpectRefusal(RunToEnd({"--hostfile", hostfile + ".none", "true"}), 65, {".none: cannot be read", "; try: "});
  ExpectRefusal(RunToEnd({"-H", "a:x", "true"}), 64, {"-H: \"x\"", "; try: "});
  ExpectRefusal(RunToEnd({"-H", "a:2,b", "-np", "4", "true"}), 64, {"-np 4 is more than the 3 slots", "; try: "});
}

TEST_F(RemoteTest, NoRemoteShell) {
  ExpectRefusal(RunToEnd(Over("a,b", "no-such-shell", {}, {"true"})), 69,
                {"remote shell: no-such-shell was not found", "the job was not started", "; try: "});
}

TEST_F(RemoteTest, AHostThatCannotBeReached) {
  const std::string shell =
      Script("rsh", "test $1 = b && { echo Connection refused >&2; exit 255; }; shift; exec sh -c \"$*\"");
  const Outcome outcome = RunToEnd(Over("a:2,b", shell, {"--start-timeout", "1.5"}, {"echo", "started"}));
  ExpectRefusal(outcome, 69,
                {"host b: remote shell: exited with code 255: Connection refused (", " attempts); ",
                 "1 of 2 hosts were not ready within --start-timeout 1.5 s", "not started", "; try: "});
  EXPECT_TRUE(Has(outcome.err, "gyrerun:   a (ranks 0-1): ready\n")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "gyrerun:   b (rank 2): remote shell: exited with code 255: Connection refused ("))
      << outcome.err;
  EXPECT_TRUE(Has(outcome.err, " attempts)")) << outcome.err;
}

TEST_F(RemoteTest, WhatWillNotPassIsNotTriedAgain) {
  const std::string shell = Script("rsh", "echo me@$1: Permission denied '(publickey)'. >&2; exit 255");
  const Outcome outcome = RunToEnd(Over("b", shell, {}, {"true"}));
  ExpectRefusal(outcome, 69,
                {"host b: remote shell: exited with code 255: me@b: Permission denied", "; try: " + shell});
  EXPECT_LT(outcome.took, seconds(10));
}

TEST_F(RemoteTest, LastWordsWithoutALineEnd) {
  ExpectRefusal(RunToEnd(Over("b", Script("rsh", "printf 'no way' >&2; exit 3"), {}, {"true"})), 69,
                {"host b: remote shell: exited with code 3: no way; the job was not started; try: "});
}

TEST_F(RemoteTest, GyrerunIsNotThere) {
  const Outcome outcome = RunToEnd(Over("b", PlainShell(), {"--remote-gyrerun", "/no/such/gyrerun"}, {"true"}));
  ExpectRefusal(outcome, 69, {"host b: agent: /no/such/gyrerun cannot be run there", "--remote-gyrerun"});
}

TEST_F(RemoteTest, ARemoteShellThatSaysNothing) {
  const Outcome outcome = RunToEnd(Over("a,b", Script("rsh", "exec sleep 100"), {"--start-timeout", "0.5"}, {"true"}));
  ExpectRefusal(outcome, 69, {"host a: agent: no word of it yet; 2 of 2 hosts were not ready"});
  EXPECT_TRUE(Has(outcome.err, "b (rank 1): agent: no word of it yet\n")) << outcome.err;
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

// --- Agents that go wrong ---

class BadAgentTest : public RemoteTest {
 protected:
  Outcome Run(const std::string& how, std::vector<std::string> options = {}) const {
    return RunToEnd(Over("b", Script("rsh", "exec " BAD_AGENT_PATH " " + how), std::move(options), {"true"}));
  }
};

TEST_F(BadAgentTest, AnotherVersion) {
  ExpectRefusal(Run("version"), 69, {"host b: agent: gyrerun is version 0.0.0-other there and ", "--remote-gyrerun"});
}

TEST_F(BadAgentTest, Silence) {
  ExpectRefusal(Run("silent", {"--start-timeout", "0.5"}), 69, {"host b: agent: reached; 1 of 1 hosts were not ready"});
}

TEST_F(BadAgentTest, WordsAtTheWrongTime) {
  ExpectRefusal(Run("early"), 69, {"host b: agent: what it says is not understood: not started yet"});
}

TEST_F(BadAgentTest, AnotherHostsRank) {
  const Outcome outcome = Run("foreign", {"--grace", "1"});
  EXPECT_EQ(outcome.code, 137) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "rank 99 is none of this host's; with rank 0")) << outcome.err;
}

TEST_F(BadAgentTest, MoreOutputThanItMaySend) {
  Gyrerun gyrerun(Over("b", Script("rsh", "exec " BAD_AGENT_PATH " flood"), {}, {"true"}), {.read_output = false});
  std::string err;
  for (int i = 0; i < 200 && !Has(err, "more output than it may send"); ++i)
    err = gyrerun.Wait(seconds(0)).err + gyrerun.Wait(std::chrono::milliseconds(50)).err;
  EXPECT_TRUE(Has(err, "more output than it may send; with rank 0")) << err;
}

TEST_F(BadAgentTest, NothingItSaysDoesHarm) {
  for (const char* how : {"random", "bytes"}) {
    for (int seed = 1; seed <= 20; ++seed) {
      const Outcome outcome = Run(std::string(how) + " " + std::to_string(seed), {"--settle", "0.1", "--grace", "0.1"});
      EXPECT_TRUE(outcome.ended);
      EXPECT_EQ(outcome.signal, 0);
      EXPECT_NE(outcome.code, 0) << how << " " << seed << ": " << outcome.err;
      EXPECT_FALSE(Has(outcome.err, "supervisor")) << how << " " << seed << ": " << outcome.err;
    }
  }
}

// --- An agent whose launcher goes wrong ---

TEST_F(RemoteTest, AnAgentIsForGyrerunItself) {
  const std::string garbage = folder_.path() / "garbage";
  std::ofstream(garbage) << std::string(100'000, 'g');
  support::Program file({GYRERUN_PATH, "--agent"}, {.environment = {}, .directory = {}, .input = garbage});
  ASSERT_TRUE(file.WaitFor(seconds(20)));
  EXPECT_EQ(file.exit_code(), 64) << file.err();
  support::Program pipe({"sh", "-c", "cat " + garbage + " | " GYRERUN_PATH " --agent"});
  ASSERT_TRUE(pipe.WaitFor(seconds(20)));
  EXPECT_EQ(pipe.exit_code(), 1) << pipe.err();
  support::Program nothing({"sh", "-c", ": | " GYRERUN_PATH " --agent"});
  ASSERT_TRUE(nothing.WaitFor(seconds(20)));
  EXPECT_TRUE(Has(nothing.out(), std::string(kAgentMagic)));
}

// --- After the start ---

// Ranks with children that leave the session, lose their parents and ignore what can be ignored.
constexpr char kStubborn[] =
    "(trap '' TERM INT HUP; setsid sh -c \"trap '' TERM INT HUP; sleep 1000 & wait\" & sleep 1000) & "
    "(setsid sh -c '(setsid sleep 1001 &) ; exec sleep 1002' &) ; "
    "echo ready; exec sleep 1003";

class RemoteLossTest : public RemoteTest {
 protected:
  void SetUp() override {
    gyrerun_ = std::make_unique<Gyrerun>(OnTwo(kStubborn, {"--settle", "0.3", "--grace", "0.5"}));
    ASSERT_TRUE(gyrerun_->WaitForOutput("ready\nready\nready\n"));
    supervisor_ = ChildrenOf(gyrerun_->pid()).at(0);
    for (const pid_t guard : ChildrenOf(supervisor_)) guards_.push_back(guard);
    ASSERT_EQ(guards_.size(), 2u);
    std::ranges::sort(guards_);  // host a's was started first
  }

  void ExpectHostLost(const std::string& host) {
    const Outcome outcome = gyrerun_->Wait();
    EXPECT_EQ(outcome.code, 137) << outcome.err;
    EXPECT_TRUE(Has(outcome.err, "gyrerun: host " + host + ": lost: ")) << outcome.err;
    EXPECT_TRUE(Has(outcome.err, " on " + host + " (pid ")) << outcome.err;
    EXPECT_TRUE(Has(outcome.err, "was lost with its host")) << outcome.err;
    EXPECT_TRUE(gyrerun_->Alive().empty());
  }

  std::unique_ptr<Gyrerun> gyrerun_;
  pid_t supervisor_ = 0;
  std::vector<pid_t> guards_;  // of the agents
};

TEST_F(RemoteLossTest, AnAgentThatIsKilled) {
  EXPECT_EQ(kill(guards_[1], SIGKILL), 0);
  ExpectHostLost("b");
}

TEST_F(RemoteLossTest, AnAgentsSupervisorThatIsKilled) {
  EXPECT_EQ(kill(ChildrenOf(guards_[0]).at(0), SIGKILL), 0);
  ExpectHostLost("a");
}

TEST_F(RemoteLossTest, AnAgentThatIsToldToEnd) {
  EXPECT_EQ(kill(guards_[1], SIGTERM), 0);
  ExpectHostLost("b");
}

TEST_F(RemoteLossTest, AnAgentThatFreezes) {
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(kill(ChildrenOf(guards_[1]).at(0), SIGSTOP), 0);
  ExpectHostLost("b");
  EXPECT_GT(std::chrono::steady_clock::now() - before, seconds(1));
}

TEST_F(RemoteLossTest, AHostOfWhichAllIsKilledAtOnce) {
  EXPECT_EQ(kill(guards_[1], SIGSTOP), 0);
  const pid_t agent = ChildrenOf(guards_[1]).at(0);
  EXPECT_EQ(kill(agent, SIGSTOP), 0);
  for (const Process& process : Descendants(guards_[1])) kill(process.pid, SIGKILL);
  EXPECT_EQ(kill(guards_[1], SIGKILL), 0);
  ExpectHostLost("b");
}

TEST_F(RemoteLossTest, TheLauncherThatIsKilled) {
  gyrerun_->Signal(SIGKILL);
  EXPECT_TRUE(gyrerun_->AllGone(seconds(15))) << testing::PrintToString(gyrerun_->Alive());
  EXPECT_EQ(gyrerun_->Wait().signal, SIGKILL);
}

TEST_F(RemoteLossTest, ItsSupervisorThatIsKilled) {
  EXPECT_EQ(kill(supervisor_, SIGKILL), 0);
  EXPECT_EQ(gyrerun_->Wait().code, 137);
  EXPECT_TRUE(gyrerun_->Alive().empty());
}

TEST_F(RemoteLossTest, BothAtOnce) {
  // Here the agents are on the launcher's own machine, and alone: nobody else is left to end what they started.
  gyrerun_->Signal(SIGSTOP);
  EXPECT_EQ(kill(supervisor_, SIGKILL), 0);
  gyrerun_->Signal(SIGKILL);
  gyrerun_->Wait(seconds(10));
  // The remote shells die with the supervisor, and with them, here, the guards; their supervisors clean up.
  EXPECT_TRUE(gyrerun_->AllGone(seconds(15))) << testing::PrintToString(gyrerun_->Alive());
}

TEST_F(RemoteLossTest, ALauncherThatFreezes) {
  EXPECT_EQ(kill(supervisor_, SIGSTOP), 0);
  // The ranks are gone before the launcher has stirred.
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (gyrerun_->Alive().size() > 2 && std::chrono::steady_clock::now() < deadline) usleep(50'000);
  EXPECT_LE(gyrerun_->Alive().size(), 2u);
  EXPECT_EQ(kill(supervisor_, SIGCONT), 0);
  EXPECT_EQ(gyrerun_->Wait().code, 137);
  EXPECT_TRUE(gyrerun_->Alive().empty());
}

}  // namespace

}  // namespace gyre::launch
