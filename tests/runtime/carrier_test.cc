#include "runtime/carrier.h"

#include <vector>

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

const std::vector<std::string> kNames = {"rank 0 on host a", "rank 1 on host a", "rank 2 on host b"};

CarrierOffer WithRdma() {
  return {.endpoint = "10.0.0.1:1", .ucx = "address"};
}
CarrierOffer WithoutRdma() {
  return {.endpoint = "10.0.0.1:1", .why_not_ucx = "no port", .why_not_rdma = "no port"};
}
CarrierOffer WithoutModule() {
  return {.endpoint = "10.0.0.1:1", .why_not_ucx = "no libgyre_ucx.so"};
}
CarrierOffer ToldUcx(CarrierOffer offer) {
  offer.ucx = "address";
  offer.why_not_ucx = "";
  offer.forced = true;
  return offer;
}
CarrierOffer ToldTcp(CarrierOffer offer) {
  offer.ucx = "";
  offer.forced = true;
  return offer;
}

TEST(CarrierOffer, IsEncodedAndDecoded) {
  for (const CarrierOffer& offer : {WithRdma(), WithoutRdma(), ToldUcx(WithoutRdma()), ToldTcp(WithRdma())}) {
    const auto decoded = DecodeCarrierOffer(Encode(offer));
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(*decoded, offer);
  }
  for (const char* const text : {"", "10.0.0.1:1", "{}", "[]", R"({"endpoint":"a","ucx":"","forced":false})",
                                 R"({"endpoint":1,"ucx":"","why_not_ucx":"","why_not_rdma":"","forced":false})",
                                 R"({"endpoint":"a","ucx":"","why_not_ucx":"","why_not_rdma":"","forced":1})"}) {
    EXPECT_THAT(DecodeCarrierOffer(text), MatchesStatus(StatusCode::kDataLoss, "cannot be read")) << text;
  }
}

TEST(Carrier, IsUcxWhereAllHaveRdma) {
  const auto choice = AgreeOnCarrier(std::vector{WithRdma(), WithRdma(), WithRdma()}, kNames);
  ASSERT_THAT(choice, IsOk());
  EXPECT_TRUE(choice->ucx);
  EXPECT_FALSE(choice->forced);
  EXPECT_TRUE(choice->compared());
}

TEST(Carrier, IsTcpWhereOneLacksSomething) {
  for (const CarrierOffer& lacks : {WithoutRdma(), WithoutModule()}) {
    const auto choice = AgreeOnCarrier(std::vector{WithRdma(), WithRdma(), lacks}, kNames);
    ASSERT_THAT(choice, IsOk());
    EXPECT_FALSE(choice->ucx);
    EXPECT_FALSE(choice->compared());
    EXPECT_EQ(choice->why, absl::StrCat("rank 2 on host b: ", lacks.why_not_ucx));
  }
}

TEST(Carrier, IsWhatRanksAreTold) {
  auto choice = AgreeOnCarrier(std::vector{ToldTcp(WithRdma()), WithRdma(), WithRdma()}, kNames);
  ASSERT_THAT(choice, IsOk());
  EXPECT_FALSE(choice->ucx);
  EXPECT_FALSE(choice->compared());
  choice = AgreeOnCarrier(std::vector{ToldUcx(WithRdma()), WithRdma(), ToldUcx(WithRdma())}, kNames);
  ASSERT_THAT(choice, IsOk());
  EXPECT_TRUE(choice->ucx);
  EXPECT_FALSE(choice->compared()) << "it would win nothing: nobody is warned, nothing decided";
  const CarrierOffer without = ToldUcx(WithoutRdma());
  choice = AgreeOnCarrier(std::vector{ToldUcx(WithRdma()), without, without}, kNames);
  ASSERT_THAT(choice, IsOk());
  EXPECT_TRUE(choice->ucx);
  EXPECT_EQ(choice->without_rdma, 1);
  EXPECT_TRUE(choice->compared());
}

TEST(Carrier, RanksThatAreToldUcxNeedTheOthers) {
  EXPECT_THAT(AgreeOnCarrier(std::vector{ToldUcx(WithRdma()), WithRdma(), WithoutRdma()}, kNames),
              MatchesStatus(StatusCode::kInvalidArgument, "ucx on rank 0 on host a, not on rank 2 on host b"));
  EXPECT_THAT(AgreeOnCarrier(std::vector{WithoutRdma(), ToldTcp(WithRdma()), ToldUcx(WithRdma())}, kNames),
              MatchesStatus(StatusCode::kInvalidArgument, "ucx on rank 2 on host b, not on rank 1 on host a"));
}

TEST(Carrier, UcxMayBeSlowerByNoiseAlone) {
  const PathModel tcp{.latency = 20e-6, .bytes_per_second = 1e9};
  const auto against = [&](double latency, double bytes_per_second) {
    return CaseAgainstUcx(std::vector<NetworkReport>(3), {.latency = latency, .bytes_per_second = bytes_per_second},
                          tcp);
  };
  EXPECT_EQ(against(2e-6, 10e9), "");
  EXPECT_EQ(against(20e-6, 0.85e9), "");
  EXPECT_EQ(against(20e-6, 0.7e9), "UCX is slower: 5.60 Gbit/s at 20.0 us by UCX, 8.00 Gbit/s at 20.0 us by TCP");
  EXPECT_NE(against(1e-3, 1e9), "");
}

TEST(Carrier, UcxThatFailsAnywhereIsNotTaken) {
  std::vector<NetworkReport> reports(3);
  reports[2].ucx_failure = "no thread";
  EXPECT_EQ(CaseAgainstUcx(reports, {}, {}), "rank 2: no thread");
}

}  // namespace
}  // namespace gyre::internal
