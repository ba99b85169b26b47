// Timelines of a job: what the ranks leave is joined, also of those that were killed.
#include "launch/timeline.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "gyrerun_fixture.h"
#include "nlohmann/json.hpp"
#include "support/signals.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

class TimelineTest : public testing::Test {
 protected:
  void Leave(int rank, const std::string& text) const { std::ofstream(TimelinePart(path_, rank)) << text; }
  nlohmann::json Whole() const { return nlohmann::json::parse(std::ifstream(path_)); }

  const support::TemporaryDirectory folder_;
  const std::string path_ = folder_.path() / "trace.json";
};

TEST_F(TimelineTest, JoinsWhatIsWhole) {
  Leave(0, "[\n{\"a\":1},\n{\"a\":2}\n]\n");
  Leave(1, "[\n{\"a\":3},\n{\"a\":{\"b\":4},\"c");  // killed while it wrote
  Leave(2, "[\n{\"a\":5},\n{\"a\":{\"b\":6}");      // likewise, and it looks whole
  Leave(3, "");
  const auto missing = MergeTimeline(path_, 5);
  ASSERT_THAT(missing, support::IsOk());
  EXPECT_THAT(*missing, testing::ElementsAre(4));
  EXPECT_EQ(Whole(), nlohmann::json::parse(R"([{"a":1},{"a":2},{"a":3},{"a":5}])"));
  EXPECT_FALSE(std::ifstream(TimelinePart(path_, 0))) << "its events are in the whole";
}

TEST_F(TimelineTest, WhereNoRankLeftAnythingAnEarlierTimelineStays) {
  std::ofstream(path_) << "[]";
  const auto missing = MergeTimeline(path_, 2);
  ASSERT_THAT(missing, support::IsOk());
  EXPECT_THAT(*missing, testing::ElementsAre(0, 1));
  EXPECT_EQ(Whole(), nlohmann::json::array());
  Leave(1, "");
  EXPECT_THAT(*MergeTimeline(path_, 2), testing::ElementsAre(0));
  EXPECT_EQ(Whole(), nlohmann::json::array());
}

TEST_F(TimelineTest, AnEarlierJobsPartsAreClearedAndItsTimelineStays) {
  Leave(0, "[\n{\"a\":1}\n]\n");
  Leave(1, "[\n{\"a\":2}\n]\n");
  std::ofstream(path_) << "[1]";
  std::filesystem::create_directory(TimelinePart(path_, 2));
  ClearTimelineParts(path_, 3);
  EXPECT_TRUE(std::filesystem::is_directory(TimelinePart(path_, 2)));
  EXPECT_THAT(*MergeTimeline(path_, 2), testing::ElementsAre(0, 1));
  EXPECT_EQ(Whole(), nlohmann::json::parse("[1]"));
}

TEST_F(TimelineTest, AFolderThatIsNotThere) {
  const std::string nowhere = folder_.path() / "no" / "trace";
  EXPECT_THAT(MergeTimeline(nowhere, 1), support::IsOk()) << "there is nothing to write";
  EXPECT_THAT(CheckTimeline(nowhere), support::MatchesStatus(absl::StatusCode::kFailedPrecondition, nowhere));
  EXPECT_THAT(CheckTimeline(folder_.path()),
              support::MatchesStatus(absl::StatusCode::kFailedPrecondition, "is a directory"));
  EXPECT_THAT(CheckTimeline(path_), support::IsOk());
  EXPECT_FALSE(std::ifstream(path_)) << "it is looked at only";
}

TEST_F(TimelineTest, OfAJobThatIsNotStartedTheEarlierOneStays) {
  std::ofstream(path_) << "[1]";
  const Outcome outcome =
      RunToEnd({"-H", "a:2", "--remote-shell", "false", "--start-timeout", "0.5", "--timeline", path_, "true"});
  EXPECT_EQ(outcome.code, 69) << outcome.err;
  EXPECT_EQ(outcome.err.find("--timeline"), std::string::npos) << outcome.err;
  EXPECT_EQ(Whole(), nlohmann::json::parse("[1]"));
}

pid_t PidOfRank(int rank, const std::string& verbose) {
  const std::string before = "gyrerun: rank " + std::to_string(rank) + ": pid ";
  const size_t at = verbose.find(before);
  return at == std::string::npos ? -1 : std::stoi(verbose.substr(at + before.size()));
}

TEST_F(TimelineTest, OfAJobWithARankThatIsKilled) {
  Gyrerun gyrerun({"-np", "3", "--verbose", "--grace", "1", "--timeline", path_, JOB_RANK_PATH});
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n"));
  // The ranks go on and on; each has written something within a tenth of a second.
  while (std::ifstream(TimelinePart(path_, 1), std::ios::ate).tellg() < 1000) usleep(10'000);
  const pid_t victim = PidOfRank(1, gyrerun.Wait(std::chrono::milliseconds(1)).err);
  ASSERT_TRUE(support::SendSignal(victim, SIGKILL)) << victim;
  EXPECT_EQ(gyrerun.Wait().code, 137);
  std::set<int> ranks;
  for (const auto& event : Whole()) {
    if (event["name"] == "barrier") ranks.insert(event["pid"].get<int>());
  }
  EXPECT_THAT(ranks, testing::ElementsAre(0, 1, 2));
}

TEST_F(TimelineTest, AProgramWithoutGyreIsTold) {
  const Outcome outcome = RunToEnd({"-np", "2", "--timeline", path_, "true"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, testing::HasSubstr("--timeline: there is none here of 2 of 2 ranks"));
}

}  // namespace

}  // namespace gyre::launch
