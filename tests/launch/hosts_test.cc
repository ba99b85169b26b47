// -H, hostfiles, and which ranks go where.
#include "launch/hosts.h"

#include <fstream>

#include "gtest/gtest.h"
#include "launch/store_address.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;
using Hosts = std::vector<HostSlots>;

TEST(HostsTest, AList) {
  const auto hosts = ParseHostList("a:2,b,user@c.example.org:64,10.0.0.1:3,[fd00::1]:4,fd00::2,[::1]");
  ASSERT_THAT(hosts, IsOk());
  EXPECT_EQ(*hosts, (Hosts{{"a", 2},
                           {"b", 1},
                           {"user@c.example.org", 64},
                           {"10.0.0.1", 3},
                           {"fd00::1", 4},
                           {"fd00::2", 1},
                           {"::1", 1}}));
}

TEST(HostsTest, AHostThatIsNamedAgainAddsToItsSlots) {
  EXPECT_EQ(*ParseHostList("a:2,b,a"), (Hosts{{"a", 3}, {"b", 1}}));
  EXPECT_EQ(*ParseHostfile("a slots=2\nb\na:5\n", "f"), (Hosts{{"a", 7}, {"b", 1}}));
}

TEST(HostsTest, AWrongListSaysWhatIsWrongAndWhatToTry) {
  for (const char* text : {"", ",", "a,,b", "a:", "a:0", "a:-1", "a:two", "a:4097", "a:99999999999", ":2", "-oProxy=x",
                           "a b", "a;b", "$(a)", "a/b", "[fd00::1", "[fd00::1]2", "user@", "a:4096,a"}) {
    EXPECT_THAT(ParseHostList(text), MatchesStatus(StatusCode::kInvalidArgument, "-H: ")) << text;
    EXPECT_THAT(ParseHostList(text), MatchesStatus(StatusCode::kInvalidArgument, "; try: -H a:2,b:2")) << text;
  }
  EXPECT_EQ(ParseHostList("a:two").status().message(),
            "-H: host a: \"two\" is no number of slots (1 to 4096); try: -H a:2,b:2");
}

TEST(HostsTest, AFile) {
  const auto hosts = ParseHostfile(
      "# a comment\n\n a slots=2 # another\nb:3\n  c\r\n[fd00::1] slots=2\nfd00::2\t\tslots=4\nd-worker-0.d.ns.svc "
      "slots=8",
      "f");
  ASSERT_THAT(hosts, IsOk());
  EXPECT_EQ(*hosts, (Hosts{{"a", 2}, {"b", 3}, {"c", 1}, {"fd00::1", 2}, {"fd00::2", 4}, {"d-worker-0.d.ns.svc", 8}}));
}

TEST(HostsTest, AByteOrderMarkIsNoPartOfAName) {
  EXPECT_EQ(*ParseHostfile("\xef\xbb\xbf"
                           "a slots=2\r\nb\r\n",
                           "f"),
            (Hosts{{"a", 2}, {"b", 1}}));
}

TEST(HostsTest, OpenMpisMostSlots) {
  EXPECT_EQ(*ParseHostfile("a slots=2 max_slots=4\nb max-slots=2\nc max_slots=3 slots=3\nd:2 max_slots=2", "f"),
            (Hosts{{"a", 2}, {"b", 1}, {"c", 3}, {"d", 2}}));
  EXPECT_THAT(ParseHostfile("a max_slots=1 slots=2", "f"),
              MatchesStatus(StatusCode::kInvalidArgument, "2 slots are more than max_slots=1"));
  EXPECT_THAT(ParseHostfile("a max_slots=many", "f"), MatchesStatus(StatusCode::kInvalidArgument, "many"));
}

TEST(HostsTest, AWrongFileNamesFileLineAndWhatIsWrong) {
  const auto error = [](const char* text) { return std::string(ParseHostfile(text, "my/file").status().message()); };
  EXPECT_EQ(
      error("a slots=2\nb slots=many\n"),
      "hostfile my/file:2: host b: \"many\" is no number of slots (1 to 4096); try: a line such as \"a slots=2\"");
  EXPECT_EQ(error("a\n\n# c\nb cores=2\n"),
            "hostfile my/file:4: host b: \"cores=2\" is not slots=N; try: a line such as \"a slots=2\"");
  EXPECT_EQ(error("a:2 slots=2"),
            "hostfile my/file:1: host a: the slots are given twice; try: a line such as \"a slots=2\"");
  EXPECT_EQ(error("slots=2"),
            "hostfile my/file:1: \"slots=2\" is no name of a host; try: a line such as \"a slots=2\"");
  EXPECT_EQ(error("# nothing\n"), "hostfile my/file: names no host; try: a line such as \"a slots=2\"");
  EXPECT_EQ(error(""), "hostfile my/file: names no host; try: a line such as \"a slots=2\"");
  EXPECT_NE(error("a slots=2\n\x01\xff\n"), "");
}

TEST(HostsTest, AFileThatCannotBeRead) {
  const support::TemporaryDirectory folder;
  EXPECT_THAT(ReadHostfile(folder.path() / "none"), MatchesStatus(StatusCode::kInvalidArgument, "No such file"));
  EXPECT_THAT(ReadHostfile(folder.path()), MatchesStatus(StatusCode::kInvalidArgument, "; try: "));
  std::ofstream(folder.path() / "some") << "a slots=2\n";
  EXPECT_EQ(*ReadHostfile(folder.path() / "some"), (Hosts{{"a", 2}}));
}

TEST(HostsTest, RanksFillHostsInOrder) {
  const Hosts hosts = {{"a", 2}, {"b", 1}, {"c", 4}};
  using Placed = std::vector<HostRanks>;
  EXPECT_EQ(*PlaceRanks(hosts, 0), (Placed{{"a", 0, 2}, {"b", 2, 1}, {"c", 3, 4}}));
  EXPECT_EQ(*PlaceRanks(hosts, 4), (Placed{{"a", 0, 2}, {"b", 2, 1}, {"c", 3, 1}}));
  EXPECT_EQ(*PlaceRanks(hosts, 1), (Placed{{"a", 0, 1}}));
  EXPECT_EQ(*PlaceRanks(hosts, 4, Placement::kSpread), (Placed{{"a", 0, 2}, {"b", 2, 1}, {"c", 3, 1}}));
  EXPECT_EQ(*PlaceRanks(hosts, 2, Placement::kSpread), (Placed{{"a", 0, 1}, {"b", 1, 1}}));
  EXPECT_EQ(*PlaceRanks(hosts, 6, Placement::kSpread), (Placed{{"a", 0, 2}, {"b", 2, 1}, {"c", 3, 3}}));
  EXPECT_EQ(*PlaceRanks(hosts, 0, Placement::kSpread), *PlaceRanks(hosts, 0));
  EXPECT_EQ(PlaceRanks(hosts, 8).status().message(),
            "-np 8 is more than the 7 slots of the hosts; try: -np 7, or more slots");
  EXPECT_EQ(RanksText({"a", 0, 2}), "ranks 0-1");
  EXPECT_EQ(RanksText({"b", 2, 1}), "rank 2");
}

TEST(HostsTest, ServersAreSpreadOverHostsOrStandBesideRanks) {
  const std::vector<HostRanks> hosts = {{"a", 0, 2}, {"b", 2, 1}, {"c", 3, 4}};
  using Placed = std::vector<HostServers>;
  EXPECT_EQ(PlaceServers(hosts, 0, false, {}), (Placed{{0, 0}, {0, 0}, {0, 0}}));
  EXPECT_EQ(PlaceServers(hosts, 2, false, {}), (Placed{{0, 0}, {0, 1}, {1, 1}}));
  EXPECT_EQ(PlaceServers(hosts, 7, false, {}), (Placed{{0, 2}, {2, 2}, {4, 3}}));
  EXPECT_EQ(PlaceServers(hosts, 7, true, {}), (Placed{{0, 2}, {2, 1}, {3, 4}}));
}

TEST(HostsTest, ServersHaveHostsOfTheirOwn) {
  const std::vector<HostRanks> ranks = {{"a", 0, 2}, {"b", 2, 1}};
  const std::vector<HostRanks> all = WithServerHosts(ranks, {"c", "b", "d"});
  EXPECT_EQ(all, (std::vector<HostRanks>{{"a", 0, 2}, {"b", 2, 1}, {"c", 3, 0}, {"d", 3, 0}}));
  EXPECT_EQ(RanksText(all[3]), "no rank");
  using Placed = std::vector<HostServers>;
  EXPECT_EQ(PlaceServers(all, 4, false, {"c", "b", "d"}), (Placed{{0, 0}, {0, 1}, {1, 1}, {2, 2}}));
  EXPECT_EQ(PlaceServers(all, 1, false, {"c", "d"}), (Placed{{0, 0}, {0, 0}, {0, 0}, {0, 1}}));
  EXPECT_EQ(WithServerHosts(ranks, {}), ranks);
  EXPECT_EQ(*ParseServerHosts("c,me@d"), (std::vector<std::string>{"c", "me@d"}));
  for (const char* wrong : {"", "c,", "c:2", "c,c"}) EXPECT_FALSE(ParseServerHosts(wrong).ok()) << wrong;
}

TEST(HostsTest, LoopbackNames) {
  for (const char* name : {"localhost", "me@localhost", "127.0.0.1", "127.8.9.1", "::1"}) {
    EXPECT_TRUE(IsLoopbackName(name)) << name;
  }
  for (const char* name : {"a", "10.0.0.1", "localhost.example.org"}) EXPECT_FALSE(IsLoopbackName(name)) << name;
}

TEST(StoreAddressTest, TheOneThatOthersReach) {
  const std::vector<InterfaceAddress> own = {{"lo", "127.0.0.1", 8}, {"eth0", "10.1.0.5", 24}, {"eth0", "fd00::5", 64}};
  EXPECT_EQ(*ChooseStoreAddress("b", {"10.1.0.5"}, own), "10.1.0.5");
  EXPECT_EQ(*ChooseStoreAddress("b", {"127.0.0.1", "192.168.0.1", "fd00::5"}, own), "fd00::5");
}

TEST(StoreAddressTest, OrWhatToTry) {
  const std::vector<InterfaceAddress> own = {{"lo", "127.0.0.1", 8}, {"eth0", "10.1.0.5", 24}};
  // Debian's /etc/hosts gives a machine's own name this address.
  const auto loopback = ChooseStoreAddress("b", {"127.0.1.1"}, own);
  EXPECT_THAT(loopback, MatchesStatus(StatusCode::kFailedPrecondition, "none of the addresses of b (127.0.1.1)"));
  EXPECT_THAT(loopback, MatchesStatus(StatusCode::kFailedPrecondition, "eth0 10.1.0.5; try: --interface "));
  EXPECT_THAT(ChooseStoreAddress("b", {"10.9.9.9"}, own), MatchesStatus(StatusCode::kFailedPrecondition, "10.9.9.9"));
}

TEST(StoreAddressTest, ByInterface) {
  EXPECT_EQ(*FindStoreAddress("nonesuch", "lo", false), "127.0.0.1");
  EXPECT_EQ(*FindStoreAddress("nonesuch", "127.0.0.0/8", false), "127.0.0.1");
  EXPECT_EQ(*FindStoreAddress("nonesuch", "", true), "127.0.0.1");
  EXPECT_THAT(FindStoreAddress("a", "nonesuch0", false), MatchesStatus(StatusCode::kFailedPrecondition, "; try: "));
}

TEST(HostsTest, RanksWithinWhatTheSlotsAllow) {
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 3}};
  EXPECT_EQ(RanksWithin(hosts, 1, 4), 4);
  EXPECT_EQ(RanksWithin(hosts, 1, 5), 5);
  EXPECT_EQ(RanksWithin(hosts, 2, 9), 5);
  EXPECT_EQ(RanksWithin(hosts, 6, 9), 6);  // which PlaceRanks refuses
  EXPECT_FALSE(PlaceRanks(hosts, RanksWithin(hosts, 6, 9)).ok());
}

}  // namespace

}  // namespace gyre::launch
