#include "runtime/network_model.h"

#include <set>

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

TEST(NetworkReport, IsEncodedAndDecoded) {
  for (const NetworkReport& report :
       {NetworkReport{}, NetworkReport{.algorithms = "allreduce=ring"},
        NetworkReport{.algorithms = "nominal", .reduced_per_second = 1.25e10, .slowest = LinkFit{3.7e-5, 1.1e9}},
        NetworkReport{.slowest = LinkFit{3e-6, 2e9}, .by_tcp = LinkFit{2e-5, 1e9}},
        NetworkReport{.by_tcp = LinkFit{2e-5, 1e9}, .ucx_failure = "no thread"}}) {
    const auto decoded = DecodeNetworkReport(Encode(report));
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(*decoded, report);
  }
}

TEST(NetworkReport, RefusesWhatItCannotRead) {
  for (const char* const text :
       {"", "[]", "{}", R"({"algorithms":1,"streams":1,"reduced":1})", R"({"algorithms":"","reduced":1})",
        R"({"algorithms":"","streams":1.5,"reduced":1})", R"({"algorithms":"","streams":1,"reduced":-1})",
        R"({"algorithms":"","streams":1,"reduced":1,"link":[1]})",
        R"({"algorithms":"","streams":1,"reduced":1,"link":[1,"2"]})",
        R"({"algorithms":"","streams":1,"reduced":1,"link_by_tcp":[1]})",
        R"({"algorithms":"","streams":1,"reduced":1,"ucx_failure":1})"}) {
    EXPECT_THAT(DecodeNetworkReport(text), MatchesStatus(StatusCode::kDataLoss, "report of the network")) << text;
  }
}

TEST(NetworkModel, IsTheSlowestThatAnybodyHasMeasured) {
  const auto model = AgreeOnModel({{.reduced_per_second = 9e9, .slowest = LinkFit{10e-6, 1e9}},
                                   {.reduced_per_second = 7e9},
                                   {.reduced_per_second = 8e9, .slowest = LinkFit{30e-6, 2e9}}});
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->latency, 30e-6);
  EXPECT_EQ(model->bytes_per_second, 1e9);
  EXPECT_EQ(model->reduced_per_second, 7e9);
}

TEST(NetworkModel, ByTcpIsWhatWasMeasuredByTcp) {
  const std::vector<NetworkReport> reports = {
      {.slowest = LinkFit{1e-6, 9e9}, .by_tcp = LinkFit{10e-6, 1e9}}, {}, {.by_tcp = LinkFit{20e-6, 2e9}}};
  const auto model = AgreeOnModel(ByTcp(reports));
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->latency, 20e-6);
  EXPECT_EQ(model->bytes_per_second, 1e9);
}

TEST(NetworkModel, IsNominalWhereNothingWasMeasured) {
  const auto model = AgreeOnModel({{}, {}});
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->latency, PathModel().latency);
  EXPECT_EQ(model->bytes_per_second, PathModel().bytes_per_second);
}

TEST(NetworkModel, RanksMustBeToldTheSame) {
  EXPECT_THAT(AgreeOnModel({{.algorithms = "allreduce=ring"}, {.algorithms = "allreduce=ring"}, {}}),
              MatchesStatus(StatusCode::kInvalidArgument, "\"allreduce=ring\" on rank 0, \"\" on rank 2"));
  EXPECT_THAT(AgreeOnModel({{}, {.streams = 2}}),
              MatchesStatus(StatusCode::kInvalidArgument, "1 on rank 0, 2 on rank 1"));
}

TEST(MeasuredPairs, HaveAPartForEveryHost) {
  EXPECT_TRUE(MeasuredPairs(1).empty());
  for (const int hosts : {2, 3, 4, 5, 64, 65}) {
    std::set<int> seen, leaders;
    for (const auto& [leader, follower] : MeasuredPairs(hosts)) {
      EXPECT_NE(leader, follower);
      EXPECT_TRUE(leaders.insert(leader).second);
      seen.insert({leader, follower});
    }
    EXPECT_EQ(seen.size(), hosts);
    EXPECT_EQ(*seen.rbegin(), hosts - 1);
  }
}

}  // namespace
}  // namespace gyre::internal
