#include "runtime/topology.h"

#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

RankPlace Place(const std::string& host, std::vector<int> cpus) {
  return {"1.0", host, host, "@x", std::move(cpus)};
}

TEST(Topology, EncodesAndDecodes) {
  RankPlace place = ThisPlace("");
  place.address = "@there";
  EXPECT_FALSE(place.host_id.empty());
  EXPECT_FALSE(place.cpus.empty());
  const auto decoded = DecodeRankPlace(Encode(place));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->version, place.version);
  EXPECT_EQ(decoded->host_id, place.host_id);
  EXPECT_EQ(decoded->address, "@there");
  EXPECT_EQ(decoded->cpus, place.cpus);
  EXPECT_EQ(ThisPlace("mine").host_id, "mine");
}

TEST(Topology, RefusesWhatItCannotRead) {
  for (const char* text : {"", "x", "[]", "{}", "{\"host_id\":3}", "nul\xff"}) {
    EXPECT_THAT(DecodeRankPlace(text), MatchesStatus(StatusCode::kDataLoss, "")) << text;
  }
}

TEST(Topology, IsCrowdedWhereRanksOutnumberTheUnionOfTheirCpus) {
  EXPECT_FALSE(IsCrowded({Place("a", {0}), Place("a", {1})}));
  EXPECT_TRUE(IsCrowded({Place("a", {0}), Place("a", {0})}));
  EXPECT_FALSE(IsCrowded({Place("a", {0, 1}), Place("a", {0, 1})}));
  EXPECT_TRUE(IsCrowded({Place("a", {0, 1}), Place("a", {1}), Place("a", {0})}));
}

TEST(Topology, SeveralHostsAreNamed) {
  EXPECT_THAT(CheckOneHost({Place("a", {}), Place("a", {})}), IsOk());
  const absl::Status two = CheckOneHost({Place("a", {}), Place("b", {}), Place("a", {})});
  EXPECT_THAT(two, MatchesStatus(StatusCode::kUnimplemented, "rank 0, 2 on a"));
  EXPECT_THAT(two, MatchesStatus(StatusCode::kUnimplemented, "rank 1 on b"));
  auto other = Place("a", {});
  other.version = "2.0";
  EXPECT_THAT(CheckOneHost({Place("a", {}), other}),
              MatchesStatus(StatusCode::kFailedPrecondition, "rank 1 runs Gyre 2.0"));
}

}  // namespace
}  // namespace gyre::internal
