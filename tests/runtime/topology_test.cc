#include "runtime/topology.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
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
  place.traced = true;
  EXPECT_FALSE(place.host_id.empty());
  EXPECT_FALSE(place.cpus.empty());
  const auto decoded = DecodeRankPlace(Encode(place));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->version, place.version);
  EXPECT_EQ(decoded->host_id, place.host_id);
  EXPECT_EQ(decoded->address, "@there");
  EXPECT_EQ(decoded->cpus, place.cpus);
  EXPECT_TRUE(decoded->traced);
  EXPECT_EQ(decoded->domain, place.domain);
  EXPECT_EQ(ThisPlace("mine").host_id, "mine");
}

// 8 CPUs as sysfs shows them: two NUMA nodes of two caches of two CPUs.
std::filesystem::path MakeMachine(const std::string& name) {
  const std::filesystem::path system = std::filesystem::path(testing::TempDir()) / name;
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::filesystem::path folder = system / absl::StrCat("cpu", cpu);
    std::filesystem::create_directories(folder / "cache/index3");
    std::filesystem::create_directories(folder / absl::StrCat("node", cpu / 4));
    std::ofstream(folder / "cache/index3/shared_cpu_list") << cpu / 2 * 2 << "-" << cpu / 2 * 2 + 1 << "\n";
  }
  return system;
}

TEST(Topology, ADomainIsWhatAllCpusOfARankShare) {
  const std::filesystem::path system = MakeMachine("gyre_topology_test");
  const auto of = [&](std::vector<int> cpus) { return DomainOf(cpus, system); };
  EXPECT_EQ(of({2}), (Domain{"2-3", "node0"}));
  EXPECT_EQ(of({6, 7}), (Domain{"6-7", "node1"}));
  EXPECT_EQ(of({4, 6}), (Domain{"", "node1"}));
  EXPECT_EQ(of({0, 1, 7}), Domain());
  EXPECT_EQ(of({}), Domain());
  EXPECT_EQ(of({2, 8}), Domain());  // not to be seen there
  std::filesystem::remove_all(system);
  EXPECT_EQ(of({2}), Domain());
}

// A host's name may be any bytes.
TEST(Topology, EncodesAHostNameThatIsNotUtf8) {
  RankPlace place = ThisPlace("");
  place.host_name = "h\xc3\x28\xffst";
  const auto decoded = DecodeRankPlace(Encode(place));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->host_id, place.host_id);
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

TEST(Topology, HostsAreNumberedByTheirFirstRanks) {
  EXPECT_EQ(HostsOf({Place("b", {}), Place("a", {}), Place("b", {}), Place("c", {})}), (std::vector{0, 1, 0, 2}));
}

TEST(Topology, ARanksHostBeginsWithTheFirstThatItReaches) {
  const std::vector<RankPlace> places = {
      {"1.0", "a", "", "@0", {}}, {"1.0", "b", "", "@1", {}}, {"1.0", "a", "", "@2", {}}, {"1.0", "a", "", "@3", {}}};
  const auto all = [](const std::string&) { return true; };
  EXPECT_EQ(FirstOnHost(places, 0, all), 0);
  EXPECT_EQ(FirstOnHost(places, 1, all), 1);
  EXPECT_EQ(FirstOnHost(places, 3, all), 0);
  EXPECT_EQ(FirstOnHost(places, 3, [](const std::string& address) { return address == "@2"; }), 2);
  EXPECT_EQ(FirstOnHost(places, 3, [](const std::string&) { return false; }), 3);
}

TEST(Topology, RanksThatDoNotReachEachOtherAreOnDifferentHosts) {
  std::vector<RankPlace> places = {Place("a", {}), Place("b", {}), Place("a", {}), Place("a", {})};
  ASSERT_THAT(SeparateHosts(places, {"0", "1", "2", "0"}), IsOk());
  EXPECT_EQ(HostsOf(places), (std::vector{0, 1, 2, 0}));
  for (const char* garbage : {"", "x", "-1", "1", "99999999999999999999"}) {
    EXPECT_THAT(SeparateHosts(places, {garbage, "1", "2", "0"}), MatchesStatus(StatusCode::kDataLoss, "rank 0"))
        << garbage;
  }
}

TEST(Topology, DifferentVersionsAreNamed) {
  EXPECT_THAT(CheckVersions({Place("a", {}), Place("b", {})}), IsOk());
  auto other = Place("b", {});
  other.version = "2.0";
  EXPECT_THAT(CheckVersions({Place("a", {}), other}),
              MatchesStatus(StatusCode::kFailedPrecondition, "rank 1 (on b) runs Gyre 2.0"));
}

}  // namespace
}  // namespace gyre::internal
