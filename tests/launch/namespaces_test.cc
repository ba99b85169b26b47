// Ranks on two hosts with a network between them: network namespaces that the test makes, joined by a cable of their
// own, with a remote shell into them. Skipped where the system does not allow that.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "remote_fixture.h"

namespace gyre::launch {

namespace {

bool System(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;  // NOLINT(cert-env33-c): names of our own
}

// Two hosts, 10.77.0.1 and 10.77.0.2, whom nothing joins but a cable.
class NamespacesTest : public RemoteTest {
 protected:
  void SetUp() override {
    const std::string unique = "gyl" + std::to_string(getpid());
    names_ = {unique + "a", unique + "b"};
    for (const std::string& name : names_) {
      if (!System("ip netns add " + name)) GTEST_SKIP() << "network namespaces cannot be made here (ip netns add)";
    }
    ASSERT_TRUE(System("ip -n " + names_[0] + " link add eth0 type veth peer name eth0 netns " + names_[1]));
    for (int i = 0; i < 2; ++i) {
      const std::string in = "ip -n " + names_[i];
      ASSERT_TRUE(System(in + " addr add 10.77.0." + std::to_string(i + 1) + "/24 dev eth0"));
      ASSERT_TRUE(System(in + " link set eth0 up && " + in + " link set lo up"));
    }
    shell_ = Script(
        "rsh", "case $1 in 10.77.0.1) ns=" + names_[0] + ";; 10.77.0.2) ns=" + names_[1] +
                   ";; *) echo unknown host >&2; exit 255;; esac; shift; exec ip netns exec $ns sh -c \"exec $*\"");
  }
  void TearDown() override {
    for (const std::string& name : names_) System("ip netns del " + name);
  }

  std::vector<std::string> Arguments(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"-H", "10.77.0.1:2,10.77.0.2:1", "--remote-shell", shell_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::vector<std::string> names_;
  std::string shell_;
};

TEST_F(NamespacesTest, RanksMeetAtTheFirstHostsStore) {
  const Outcome outcome = RunToEnd(Arguments({MEMBERSHIP_PROBE_PATH}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* line : {"rank 0 of 3 by gyrerun: v0 v1 v2\n", "rank 2 of 3 by gyrerun: v0 v1 v2\n"}) {
    EXPECT_TRUE(Has(outcome.out, line)) << outcome.out << outcome.err;
  }
}

// All that a kernel tells of its boot and its namespaces is the same on machines that were resumed from one snapshot.
TEST_F(NamespacesTest, MachinesResumedFromOneSnapshotAreTwoHosts) {
  const std::filesystem::path proc = folder_.path() / "proc";
  for (const char* file : {"self/ns/net", "sys/kernel/random/boot_id"}) {
    std::filesystem::create_directories((proc / file).parent_path());
    std::ofstream(proc / file) << "the same\n";
  }
  Gyrerun gyrerun(
      Arguments({"unshare", "-m", "sh", "-c", "mount --bind " + proc.string() + " /proc && exec " JOB_RANK_PATH}));
  EXPECT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n")) << gyrerun.Wait({}).err;
  gyrerun.Signal(SIGTERM);
  gyrerun.Wait();
}

TEST_F(NamespacesTest, TheStoreIsWhereOthersReachIt) {
  const Outcome by_name = RunToEnd(Arguments({"sh", "-c", "echo ${GYRE_STORE%:*} $GYRE_INTERFACE"}));
  EXPECT_EQ(by_name.out, "10.77.0.1\n10.77.0.1\n10.77.0.1\n") << by_name.err;
  const Outcome by_interface =
      RunToEnd(Arguments({"--interface", "eth0", "sh", "-c", "echo ${GYRE_STORE%:*} $GYRE_INTERFACE"}));
  EXPECT_EQ(by_interface.out, "10.77.0.1 eth0\n10.77.0.1 eth0\n10.77.0.1 eth0\n") << by_interface.err;
  const Outcome by_subnet = RunToEnd(Arguments({"--interface", "10.77.0.0/24", "sh", "-c", "echo ${GYRE_STORE%:*}"}));
  EXPECT_EQ(by_subnet.out, "10.77.0.1\n10.77.0.1\n10.77.0.1\n") << by_subnet.err;
}

TEST_F(NamespacesTest, AHostThatDoesNotReachTheStoreKeepsAllFromStarting) {
  ASSERT_TRUE(System("ip -n " + names_[1] + " link set eth0 down"));
  const Outcome outcome = RunToEnd(Arguments({"echo", "started"}));
  ExpectRefusal(outcome, 69,
                {"gyrerun: host 10.77.0.2: connection back: the store at 10.77.0.1:", " cannot be reached: ",
                 "; try: --interface "});
}

TEST_F(NamespacesTest, ThePreflightKnowsTheWayAndWhatPairsUse) {
  const Outcome outcome = RunToEnd(Arguments({"--preflight-only", "true"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {", eth0 10.77.0.1/24, MTU 1500\n", ", eth0 10.77.0.2/24, MTU 1500\n",
                           "gyrerun: transport: pairs on one host: shared memory\n",
                           "gyrerun: transport: all other pairs: TCP by eth0\n"}) {
    EXPECT_TRUE(Has(outcome.err, part)) << part << outcome.err;
  }
  const Outcome shared = RunToEnd(Arguments({"--preflight-only", "--shared-volume", folder_.path().string(), "true"}));
  EXPECT_TRUE(Has(shared.err, "gyrerun: transport: pairs on hosts 10.77.0.1, 10.77.0.2: shared memory\n"))
      << shared.err;
  EXPECT_FALSE(Has(shared.err, "TCP")) << shared.err;
  const Outcome nowhere = RunToEnd(Arguments({"--shared-volume", "/no/such/folder", "true"}));
  ExpectRefusal(nowhere, 69, {"shared volume: --shared-volume /no/such/folder: "});
}

TEST_F(NamespacesTest, NothingIsLeftInAnyNamespace) {
  Gyrerun gyrerun(Arguments({"sh", "-c", "setsid sleep 1001 & echo ready; exec sleep 1000"}));
  ASSERT_TRUE(gyrerun.WaitForOutput("ready\nready\nready\n")) << gyrerun.Wait({}).err;
  gyrerun.Signal(SIGKILL);
  EXPECT_TRUE(gyrerun.AllGone(std::chrono::seconds(15)));
  for (const std::string& name : names_) EXPECT_TRUE(System("test -z \"$(ip netns pids " + name + ")\""));
  gyrerun.Wait();
}

}  // namespace

}  // namespace gyre::launch
