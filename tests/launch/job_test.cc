// A job of real ranks under gyrerun: they meet through its store, and the loss of one ends it in time.
#include <csignal>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "gyrerun_fixture.h"
#include "support/signals.h"

namespace gyre::launch {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// How many lines of the ranks' own name rank 1.
int Reports(const std::string& text) {
  int count = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("gyrerun:") && Has(line, "rank 1 ")) ++count;
  }
  return count;
}

pid_t PidOfRank(int rank, const std::string& verbose) {
  const std::string before = "gyrerun: rank " + std::to_string(rank) + ": pid ";
  const size_t at = verbose.find(before);
  return at == std::string::npos ? -1 : std::stoi(verbose.substr(at + before.size()));
}

class JobTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(gyrerun_.WaitForOutput("ready\nready\nready\n")) << gyrerun_.Wait({}).err; }

  // Sends `signal` to rank 1; how the job ended after that.
  Outcome Hit(int signal) {
    const pid_t pid = PidOfRank(1, gyrerun_.Wait(milliseconds(50)).err);
    const auto start = steady_clock::now();
    EXPECT_TRUE(support::SendSignal(pid, signal)) << pid;
    Outcome outcome = gyrerun_.Wait();
    outcome.took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
    EXPECT_TRUE(outcome.ended);
    EXPECT_TRUE(gyrerun_.Alive().empty());
    for (const char* survivor : {"rank 0 (pid ", "rank 2 (pid "})
      EXPECT_TRUE(Has(outcome.err, survivor)) << outcome.err;
    EXPECT_EQ(Reports(outcome.err), 2) << outcome.err;
    return outcome;
  }

  Gyrerun gyrerun_{{"-np", "3", "--verbose", "--grace", "1", JOB_RANK_PATH}};
};

TEST_F(JobTest, AKilledRankIsTheRootCause) {
  const Outcome outcome = Hit(SIGKILL);
  EXPECT_EQ(outcome.code, 137) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "rank 1 (pid ")) << outcome.err;
  EXPECT_LT(outcome.took, seconds(2));  // nobody had to be told
}

TEST_F(JobTest, AFrozenRankIsReportedByTheOthersAndEnded) {
  const Outcome outcome = Hit(SIGSTOP);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "stopped then: rank 1 (pid ")) << outcome.err;
  EXPECT_LT(outcome.took, seconds(10));
}

}  // namespace

}  // namespace gyre::launch
