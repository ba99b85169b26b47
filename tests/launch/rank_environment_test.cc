#include "launch/rank_environment.h"

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
