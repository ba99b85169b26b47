// A program with an embedding, under the built gyrerun: its table is at the servers, through the public face alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "support/program.h"
#include "support/temporary.h"

namespace gyre {
namespace {

using support::Program;
using testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(60);

class Embedding : public testing::Test {
 protected:
  std::vector<std::string> Command(const std::vector<std::string>& launch) const {
    std::vector<std::string> command = {GYRERUN_PATH, "-np", "2"};
    command.insert(command.end(), launch.begin(), launch.end());
    command.insert(command.end(), {EMBEDDING_RANK_PATH, "200", go_});
    return command;
  }

  void Go() const { std::ofstream(go_) << "go on"; }

  struct Outcome {
    double first = 0, last = 0;
    std::string weights;  // all digits: the same bits, or others
  };
  static Outcome OutcomeOf(Program& program) {
    EXPECT_TRUE(program.WaitFor(kLimit)) << program.output();
    EXPECT_EQ(program.exit_code(), 0) << program.output();
    const std::string out = program.out();
    std::smatch found;
    if (!std::regex_search(out, found, std::regex("losses ([^ ]+) ([^ ]+) weights ([^\n]+)"))) {
      ADD_FAILURE() << program.output();
      return {};
    }
    return {std::strtod(found[1].str().c_str(), nullptr), std::strtod(found[2].str().c_str(), nullptr), found[3]};
  }

  Outcome Undisturbed(const std::vector<std::string>& launch) const {
    Go();
    Program program(Command(launch));
    const Outcome outcome = OutcomeOf(program);
    std::filesystem::remove(go_);
    return outcome;
  }

  // Kills the process of that name halfway; it is started again alone.
  Outcome Killed(const std::string& name, std::vector<std::string> launch) const {
    launch.insert(launch.end(), {"--restart-rank", "1", "--verbose"});
    Program program(Command(launch));
    EXPECT_TRUE(program.WaitForOutput("halfway", kLimit)) << program.output();
    const std::string text = program.output();
    std::smatch found;
    if (!std::regex_search(text, found, std::regex(name + ": pid ([0-9]+)"))) {
      ADD_FAILURE() << text;
      return {};
    }
    EXPECT_EQ(kill(std::stoi(found[1]), SIGKILL), 0);
    EXPECT_TRUE(program.WaitForOutput(name + " (pid", kLimit)) << program.output();
    Go();
    const Outcome outcome = OutcomeOf(program);
    EXPECT_THAT(program.err(), HasSubstr("it is started again, 1 of 1"));
    std::filesystem::remove(go_);
    return outcome;
  }

  const support::TemporaryDirectory folder_;
  const std::string go_ = folder_.path() / "go";
};

// Servers add up in another order than a ring; rows have the sum of both ranks' either way.
TEST_F(Embedding, LearnsThroughServersAsByAllReduce) {
  const Outcome expected = Undisturbed({});
  EXPECT_LT(expected.last, 0.05 * expected.first);
  for (const char* const servers : {"1", "3"}) {
    const Outcome outcome = Undisturbed({"--servers", servers});
    EXPECT_NEAR(outcome.first, expected.first, 1e-3 * expected.first) << servers;
    EXPECT_NEAR(outcome.last, expected.last, 1e-3 * expected.first) << servers;
    EXPECT_NEAR(std::stod(outcome.weights), std::stod(expected.weights), 1e-3 * std::stod(expected.weights)) << servers;
  }
}

TEST_F(Embedding, AServerThatIsKilledCostsNothing) {
  const Outcome expected = Undisturbed({"--servers", "2"});
  for (const std::vector<std::string>& launch :
       {std::vector<std::string>{"--servers", "2"}, {"--servers", "2", "--replicas", "1"}}) {
    const Outcome outcome = Killed("server 1", launch);
    EXPECT_EQ(outcome.weights, expected.weights) << launch.size();
    EXPECT_EQ(outcome.last, expected.last) << launch.size();
  }
}

// It takes its place among the ranks, which wait for it.
TEST_F(Embedding, ARankThatIsKilledBeforeItHasJoinedIsAsIfItNeverWas) {
  const Outcome expected = Undisturbed({"--servers", "2"});
  Go();
  std::vector<std::string> command = {GYRERUN_PATH,
                                      "-np",
                                      "2",
                                      "--servers",
                                      "2",
                                      "--restart-rank",
                                      "1",
                                      "sh",
                                      "-c",
                                      "[ $GYRE_RANK = 1 ] && mkdir $2.died 2>/dev/null && kill -9 $$; exec $0 $1 $2",
                                      EMBEDDING_RANK_PATH,
                                      "200",
                                      go_};
  Program program(command);
  const Outcome outcome = OutcomeOf(program);
  EXPECT_THAT(program.err(), HasSubstr("rank 1 (pid"));
  EXPECT_THAT(program.err(), testing::Not(HasSubstr("rank 0 (pid")));
  EXPECT_EQ(outcome.weights, expected.weights);
}

TEST_F(Embedding, ARankThatIsKilledComesBack) {
  const Outcome outcome = Killed("rank 1", {"--servers", "2"});
  EXPECT_LT(outcome.last, 0.1 * outcome.first);
}

}  // namespace
}  // namespace gyre
