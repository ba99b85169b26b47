#include "launch/rank_environment.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace gyre::launch {

namespace {

using Words = std::vector<std::string>;

const JobIdentity kJob{.size = 4, .store = "127.0.0.1:99", .job_id = "ab", .secret_fd = "7", .epoch = 3};

TEST(RankEnvironmentTest, TheLaterWins) {
  const Words environment =
      RankEnvironment({"PATH=/bin", "A=old", "GYRE_RANK=9", "RANK=5"}, {"A=new", "PATH", "B="}, kJob, 2);
  EXPECT_EQ(environment, (Words{"PATH=/bin", "RANK=5", "A=new", "B=", "GYRE_RANK=2", "GYRE_SIZE=4",
                                "GYRE_STORE=127.0.0.1:99", "GYRE_JOB_ID=ab", "GYRE_EPOCH=3", "GYRE_SECRET_FD=7"}));
}

TEST(RankEnvironmentTest, NamesThatOnlyBeginAlikeStay) {
  const Words environment = RankEnvironment({"AB=1", "A=1"}, {"A=2"}, kJob, 0);
  EXPECT_EQ(environment[0], "AB=1");
  EXPECT_EQ(environment[1], "A=2");
}

TEST(RankEnvironmentTest, OtherHostsGetGyresVariablesAndExports) {
  const Words own = {"PATH=/bin",   "A=1",          "GYRE_TIMEOUT=3",  "GYRE_HOST_ID=x",
                     "GYRE_RANK=9", "GYRE_EPOCH=2", "GYRE_SECRET_FD=3"};
  EXPECT_EQ(RemoteEnvironment(own, {"A", "NONE", "B=2", "GYRE_TIMEOUT=4"}), (Words{"A=1", "B=2", "GYRE_TIMEOUT=4"}));
  EXPECT_EQ(RemoteEnvironment(own, {}), (Words{"GYRE_TIMEOUT=3"}));
  EXPECT_EQ(RemoteEnvironment(own, {"GYRE_HOST_ID=y"}), (Words{"GYRE_TIMEOUT=3", "GYRE_HOST_ID=y"}));
}

TEST(RankEnvironmentTest, OtherLaunchersNames) {
  // Hosts of 3, 1 and 2 ranks: rank 5 is the second one of the last, and of three hosts two have a second one.
  Words environment = {"PATH=/bin", "RANK=77"};
  NameRankAsOthersDo({3, 1, 2}, 5, environment);
  EXPECT_EQ(environment.size(), 18u);
  EXPECT_EQ(environment[0], "PATH=/bin");
  const auto expect = [&environment](const Words& entries) {
    for (const std::string& entry : entries) {
      EXPECT_EQ(std::ranges::count(environment, entry), 1) << entry << "\n" << testing::PrintToString(environment);
    }
  };
  expect({"OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_NODE_RANK=1"});
  expect({"RANK=5", "WORLD_SIZE=6", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=2", "GROUP_WORLD_SIZE=3"});
  expect({"HOROVOD_RANK=5", "HOROVOD_SIZE=6", "HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_SIZE=2", "HOROVOD_CROSS_RANK=1",
          "HOROVOD_CROSS_SIZE=2"});
  NameRankAsOthersDo({3, 1, 2}, 2, environment);
  EXPECT_EQ(environment.size(), 18u);
  expect({"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=3", "GROUP_RANK=0", "HOROVOD_CROSS_RANK=0", "HOROVOD_CROSS_SIZE=1"});
  Words alone;
  NameRankAsOthersDo({1}, 0, alone);
  EXPECT_EQ(std::ranges::count(alone, "WORLD_SIZE=1"), 1);
}

TEST(RankEnvironmentTest, CheckExport) {
  EXPECT_TRUE(CheckExport("A").ok());
  EXPECT_TRUE(CheckExport("A=b=c").ok());
  EXPECT_TRUE(CheckExport("GYRE_TIMEOUT=3").ok());
  EXPECT_FALSE(CheckExport("").ok());
  EXPECT_FALSE(CheckExport("=a").ok());
  EXPECT_FALSE(CheckExport("GYRE_STORE=elsewhere:1").ok());
  EXPECT_FALSE(CheckExport("GYRE_EPOCH=1").ok());
}

}  // namespace

}  // namespace gyre::launch
