// Agents and launchers that go wrong, and hosts that are lost: the documented exit code, and nothing left behind. What
// keeps a job from its start is in remote_start_test.
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

// --- Agents that go wrong ---

class BadAgentTest : public RemoteTest {
 protected:
  Outcome Run(const std::string& how, std::vector<std::string> options = {}) const {
    return RunToEnd(Over("b", Script("rsh", "exec " BAD_AGENT_PATH " " + how), std::move(options), {"true"}));
  }
};

TEST_F(BadAgentTest, Silence) {
  ExpectRefusal(Run("silent", {"--start-timeout", "0.5"}), 69,
                {"host b: agent: it was reached, but is not ready; 1 of 1 hosts"});
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

// --- What ended the job, where host b hears a second late that it is to start ---

class LateStartTest : public RemoteTest {
 protected:
  // Rank 0 on a and rank 1 on b, each in the folder of the test.
  Outcome Run(const std::string& on_a, const std::string& on_b) const {
    const std::string late = "{ dd bs=64k count=1 2>/dev/null; sleep 1; exec cat; } | ";  // the job, then all else
    const std::string shell = Script("rsh", "test $1 = b || { shift; exec sh -c \"exec $*\"; }; shift; " + late + "$*");
    const std::string script = "cd $1; if [ $GYRE_RANK = 0 ]; then " + on_a + "; else " + on_b + "; fi";
    return RunToEnd(Over("a,b", shell, {"--settle", "5"}, {"sh", "-c", script, "sh", folder_.path().string()}));
  }

  static constexpr char kAwaitB[] = "until [ -e begun ]; do sleep 0.02; done; ";
  static constexpr char kAwaitA[] = ": > begun; until [ -e over ]; do sleep 0.02; done; ";
};

TEST_F(LateStartTest, TheFirstFailureByTime) {
  const Outcome outcome = Run(std::string(kAwaitB) + ": > over; exit 7", std::string(kAwaitA) + "sleep 0.3; exit 1");
  EXPECT_EQ(outcome.code, 7) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "rank 0 on a (pid ")) << outcome.err;
}

TEST_F(LateStartTest, AHostThatIsLostBefore) {
  const Outcome outcome =
      Run(std::string(kAwaitB) + ": > over; kill -9 $PPID; sleep 100", std::string(kAwaitA) + "sleep 0.3; exit 1");
  EXPECT_EQ(outcome.code, 137) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "was lost with its host")) << outcome.err;
}

}  // namespace

}  // namespace gyre::launch
