#include "launch/host_failure.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launch/host_facts.h"
#include "launch/host_table.h"
#include "launch/report.h"
#include "launch/shared_volume.h"
#include "launch/transports.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::launch {

namespace {

HostFailure Refused(const std::string& host, int attempts = 1) {
  return {"remote shell", absl::StrCat("ssh: ", host, ": refused"), absl::StrCat("ssh ", host), 69, host, attempts};
}

TEST(HostFailureTest, OneHost) {
  EXPECT_EQ(NotStartedLine({Refused("b")}, ""),
            "host b: remote shell: ssh: b: refused; the job was not started; try: ssh b");
  EXPECT_EQ(NotStartedLine({Refused("b", 3)}, "1 of 2 hosts were late"),
            "host b: remote shell: ssh: b: refused (3 attempts); 1 of 2 hosts were late; the job was not started; "
            "try: ssh b");
  EXPECT_EQ(NotStartedLine({{"agent", "its connection ended", "", 69, "b"}}, ""),
            "host b: agent: its connection ended; the job was not started; try: --verbose, which shows all that the "
            "hosts say");
}

TEST(HostFailureTest, Stages) {
  EXPECT_EQ(StageOf("ssh: Could not resolve hostname b: Name or service not known"), "resolve");
  EXPECT_EQ(StageOf("ssh: connect to host b port 2222: Connection refused"), "connect");
  EXPECT_EQ(StageOf("me@b: Permission denied (publickey)."), "login");
  EXPECT_EQ(StageOf("exited with code 3"), "remote shell");
}

TEST(HostTableTest, ColumnsAndCounts) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(HostTable({{"alpha", "ranks 0-3", true, "ready"}, {"b", "rank 4", false, "resolve: no"}}),
            (Lines{"  b      rank 4     resolve: no", "  alpha  ranks 0-3  ready"}));
  std::vector<HostRow> rows;
  for (int i = 0; i < 100; ++i) rows.push_back({absl::StrCat("h", i), "rank", i % 2 == 0, "state"});
  const Lines lines = HostTable(rows);
  EXPECT_EQ(lines.size(), 65u);
  EXPECT_EQ(lines[0].substr(0, 4), "  h1");
  EXPECT_EQ(lines.back(), "  and 36 more hosts, 36 of them ready");
  EXPECT_TRUE(HostTable({}).empty());
}

TEST(HostFactsTest, ThisHost) {
  const HostFacts facts = LookAtThisHost("127.0.0.1");
  EXPECT_GE(facts.cpus, 1u);
  EXPECT_GT(facts.memory, uint64_t{64} << 20);
  EXPECT_GE(facts.mtu, 1280u);
  EXPECT_FALSE(facts.machine.empty());
  EXPECT_EQ(LookAtThisHost("192.0.2.1").mtu, 0u);
  EXPECT_EQ(FactsText({8, 1, uint64_t{64} << 30, uint64_t{64} << 20, UINT64_MAX, 0, 1500}),
            "8 CPUs, 1 GPU, 64.0 GiB, /dev/shm 64 MiB free, memlock unlimited, MTU 1500");
}

TEST(HostFactsTest, DoubtsNameTheHost) {
  const HostFacts good{4, 2, 1, uint64_t{1} << 30, 65536, 0, 1500, "m1"};
  HostFacts other = good;
  other.machine = "m2";
  EXPECT_TRUE(Doubts({{"a", 2, good, 0.2}, {"b", 2, other, -0.9}}).empty());
  other.mtu = 9000;
  other.shm_free = uint64_t{64} << 20;
  const std::vector<std::string> doubts = Doubts({{"a", 5, good, 0}, {"b", 2, other, -2.5}, {"c", 1, good, 3}});
  EXPECT_EQ(doubts,
            (std::vector<std::string>{"host a: 5 ranks on 4 CPUs", "host a: 5 ranks on 2 GPUs",
                                      "host b: /dev/shm has 64 MiB free: enough for Gyre, not for NCCL and others",
                                      "host b: its clock is 2.5 s behind", "host b: MTU 9000, and 1500 on a",
                                      "host c: its clock is 3.0 s ahead", "host c: the same machine as a"}));
}

TEST(HostFactsTest, VersionsSubnetsAndLockedMemory) {
  HostFacts facts{.gpus = 2, .shm_free = uint64_t{1} << 30, .memlock = UINT64_MAX, .machine = "m1"};
  facts.rdma = 1;
  facts.driver = "550.54", facts.cuda = "12.4", facts.nccl = "2.21.5";
  facts.address = "10.77.0.1/24", facts.interface = "eth0";
  HostFacts other = facts;
  other.machine = "m2";
  other.address = "10.77.0.2/24";
  EXPECT_TRUE(Doubts({{"a", 0, facts, 0}, {"b", 0, other, 0}}).empty());
  other.cuda = "12.2", other.nccl = "";
  other.address = "10.78.0.2/24";
  other.memlock = uint64_t{8} << 20;
  HostFacts without;
  without.shm_free = uint64_t{1} << 30;
  EXPECT_EQ(Doubts({{"c", 0, without, 0}, {"a", 0, facts, 0}, {"b", 0, other, 0}}),
            (std::vector<std::string>{"host b: memlock is 8 MiB: RDMA locks what it sends from",
                                      "host b: CUDA 12.2, and 12.4 on a", "host b: NCCL not found, and 2.21.5 on a",
                                      "host b: 10.78.0.2/24 is not in the subnet of a, 10.77.0.1/24"}));
  facts.mtu = 1500;
  const std::string text = FactsText(facts);
  EXPECT_NE(text.find("2 GPUs (CUDA 12.4, driver 550.54, NCCL 2.21.5), "), std::string::npos) << text;
  EXPECT_NE(text.find(", 1 RDMA device, eth0 10.77.0.1/24, MTU 1500"), std::string::npos) << text;
}

TEST(TransportsTest, WhatEachPairUses) {
  using Lines = std::vector<std::string>;
  HostFacts one, two;
  one.shares = "m1", two.shares = "m2";
  one.interface = two.interface = "eth0";
  EXPECT_EQ(TransportLines({{"a", 1, one, 0}, {"b", 1, two, 0}}, ""), Lines{"transport: all pairs: TCP by eth0"});
  EXPECT_EQ(TransportLines({{"a", 2, one, 0}, {"b", 1, two, 0}, {"c", 1, one, 0}}, "ucx"),
            (Lines{"transport: pairs on one host: shared memory", "transport: pairs on hosts a, c: shared memory",
                   "transport: all other pairs: UCX (GYRE_BACKEND=ucx) by eth0"}));
  EXPECT_EQ(TransportLines({{"a", 2, one, 0}}, ""), Lines{"transport: pairs on one host: shared memory"});
  EXPECT_EQ(TransportLines({{"a", 1, {}, 0}, {"b", 1, {}, 0}}, ""), Lines{"transport: all pairs: TCP"});
  const std::string by_mpi = "transport: the world's collectives of tensors on the host: MPI (GYRE_BACKEND=mpi)";
  EXPECT_EQ(TransportLines({{"a", 2, one, 0}}, "mpi"), (Lines{by_mpi, "transport: pairs on one host: shared memory"}));
  EXPECT_EQ(TransportLines({{"a", 1, one, 0}, {"b", 1, two, 0}}, "mpi"),
            (Lines{by_mpi, "transport: all pairs: TCP by eth0"}));
}

TEST(SharedVolumeTest, IsTheUsersOwnFolderInIt) {
  const support::TemporaryDirectory folder;
  const auto volume = OpenSharedVolume(folder.path());
  ASSERT_THAT(volume, support::IsOk());
  EXPECT_EQ(volume->folder, absl::StrCat(folder.path().string(), "/gyre-", geteuid()));
  EXPECT_EQ(OpenSharedVolume(folder.path())->id, volume->id);  // again, by another container
  const support::TemporaryDirectory another;
  EXPECT_NE(OpenSharedVolume(another.path())->id, volume->id);
  ASSERT_EQ(chmod(volume->folder.c_str(), 0777), 0);
  for (const std::string& wrong :
       {folder.path().string(), std::string("relative"), std::string("/no/such/folder"), "/" + std::string(100, 'x')}) {
    EXPECT_THAT(OpenSharedVolume(wrong),
                support::MatchesStatus(absl::StatusCode::kFailedPrecondition, "--shared-volume " + wrong + ": "));
  }
}

TEST(HostFailureTest, TheSameTroubleIsToldOnce) {
  EXPECT_EQ(
      NotStartedLine({Refused("b", 2), Refused("me@c"), Refused("c", 3), Refused("e")}, ""),
      "hosts b, c, e: remote shell: ssh: b: refused (2 attempts); host me@c: remote shell: ssh: me@c: refused; the "
      "job was not started; try: ssh b");
}

// "a" and "no" are in what is said of all of them, not only where they are named.
TEST(HostFailureTest, NamesThatAreWordsOrPartsOfThem) {
  std::vector<HostFailure> failures;
  for (const char* host : {"a", "no", "s", ""}) failures.push_back({"agent", "says nothing", "more time", 69, host});
  EXPECT_EQ(NotStartedLine(failures, ""),
            "hosts a, no, s, : agent: says nothing; the job was not started; try: more time");
}

TEST(HostFailureTest, ManyTroublesAndHostsAreCounted) {
  std::vector<HostFailure> failures;
  for (int i = 1; i <= 5; ++i) {
    failures.push_back({"agent", absl::StrCat("cause ", i), "", 69, absl::StrCat("h", i)});
  }
  EXPECT_TRUE(NotStartedLine(failures, "")
                  .starts_with("host h1: agent: cause 1; host h2: agent: cause 2; host h3: agent: cause 3; hosts h4, "
                               "h5: other causes; the job "))
      << NotStartedLine(failures, "");
  failures.clear();
  for (int i = 1; i <= 10'000; ++i) failures.push_back(Refused(absl::StrCat("h", i)));
  EXPECT_TRUE(NotStartedLine(failures, "")
                  .starts_with("hosts h1, h2, h3, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14, h15, h16 and 9984 "
                               "more: remote shell: ssh: h1"))
      << NotStartedLine(failures, "");
}

TEST(HostFailureTest, WhatOthersWroteIsOneLine) {
  EXPECT_EQ(OneLine("a\nb\r\n\x1b[2J\x7f\xc3\xa4"), "a b   [2J \xc3\xa4");
  EXPECT_EQ(OneLine(std::string(1000, 'x')), std::string(1000, 'x'));
  EXPECT_EQ(OneLine(std::string(1001, 'x')), std::string(1000, 'x') + "...");
}

}  // namespace

}  // namespace gyre::launch
