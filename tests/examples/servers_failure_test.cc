// Training through parameter servers that are killed, ended, lost or stopped, as ranks are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "examples/servers_fixture.h"

namespace gyre {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

TEST_F(CharLmByServers, AServerAndARankAreKilledAndTrainingGoesOn) {
  Program program(Command({"--servers", "2", "--restart-rank", "1", "--verbose"}, {"--steps", "1000"}));
  ASSERT_TRUE(WaitForSteps(20)) << program.output();
  ASSERT_TRUE(Signal(program, "server 1", SIGKILL)) << program.output();
  ASSERT_TRUE(program.WaitForOutput("server 1 (pid", kLimit));
  ASSERT_TRUE(WaitForSteps(200)) << program.output();
  ASSERT_TRUE(Signal(program, "rank 1", SIGKILL)) << program.output();
  ExpectEnd(program, 1000);
  EXPECT_THAT(program.err(), HasSubstr("rank 1 (pid"));
  EXPECT_THAT(program.err(), HasSubstr("it is started again, 1 of 1"));
}

// As what preempts a machine does it: nobody but gyrerun ends a server for good.
TEST_F(CharLmByServers, AServerThatSomebodyEndsIsStartedAgain) {
  Program program(Command({"--servers", "2", "--restart-rank", "1", "--verbose"}, {"--steps", "300"}));
  ASSERT_TRUE(WaitForSteps(20)) << program.output();
  ASSERT_TRUE(Signal(program, "server 1", SIGTERM)) << program.output();
  ASSERT_TRUE(program.WaitForOutput("exited with code 143; it is started again, 1 of 1", kLimit)) << program.output();
  ExpectEnd(program, 300);
}

TEST_F(CharLmByServers, AServerThatSomebodyEndsForGoodEndsTheJob) {
  Program program(Command({"--servers", "1", "--verbose"}, {"--steps", "100000"}));
  ASSERT_TRUE(WaitForSteps(20)) << program.output();
  ASSERT_TRUE(Signal(program, "server 0", SIGTERM)) << program.output();
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 143) << program.output();
  EXPECT_THAT(program.err(), ContainsRegex("gyrerun: server 0 \\(pid [0-9]+\\) exited with code 143"));
}

// The process and the folder of all snapshots: the other server has what it had, and training ends where it would have.
TEST_F(CharLmByServers, AServerThatIsLostWithItsSnapshotsCostsNothingWithAReplica) {
  const std::vector<std::string> steps = {"--steps", "300"};
  const double expected = BitsOf({"--servers", "2"}, steps);
  std::filesystem::remove(losses_);
  Program program(Command({"--servers", "2", "--replicas", "1", "--restart-rank", "1", "--verbose"}, steps));
  ASSERT_TRUE(WaitForSteps(50)) << program.output();
  const std::optional<pid_t> server = PidOf(program, "server 1");
  ASSERT_TRUE(server) << program.output();
  std::ifstream file("/proc/" + std::to_string(*server) + "/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  ASSERT_EQ(words.size(), 5u) << "gyrerun serve NUMBER LIFE FOLDER";
  std::filesystem::rename(words[4], folder_.path() / "lost");
  ASSERT_TRUE(support::SendSignal(*server, SIGKILL));
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  EXPECT_THAT(program.err(), HasSubstr("it is started again, 1 of 1"));
  EXPECT_EQ(LastLine(program.out())["heldout_bits_per_char"], expected) << program.output();
}

TEST_F(CharLmByServers, AServerThatIsStoppedDoesNotHoldUpTheEnd) {
  Program program({GYRERUN_PATH, "-np", "1", "--servers", "1", "--grace", "0.2", "--verbose", "sh", "-c",
                   "while [ ! -e $0 ]; do sleep 0.02; done", losses_});
  ASSERT_TRUE(program.WaitForOutput("rank 0: pid", kLimit));
  ASSERT_TRUE(Signal(program, "server 0", SIGSTOP)) << program.output();
  std::ofstream(losses_) << "go on";
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
}

TEST_F(CharLmByServers, WhoDiesAgainAndAgainEndsTheJob) {
  Program program({GYRERUN_PATH, "-np", "2", "--servers", "1", "--restart-rank", "2", "sh", "-c",
                   "[ $GYRE_RANK = 0 ] && exit 3; sleep 100"});
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 3);
  EXPECT_THAT(program.err(), HasSubstr("it is started again, 2 of 2"));
  EXPECT_THAT(program.err(), HasSubstr("rank 0 (pid"));
}

}  // namespace
}  // namespace gyre
