// Hosts as schedulers, platforms and scripts name them.
#include "launch/host_sources.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "gtest/gtest.h"
#include "launch/script.h"
#include "support/status_matchers.h"

namespace gyre::launch {

namespace {

using absl::StatusCode;
using support::MatchesStatus;
using Hosts = std::vector<HostSlots>;

TimePoint In(double seconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int>(seconds * 1e3));
}

Options Discovering(std::string script, int ranks = 0) {
  Options options;
  options.discovery_script = std::move(script);
  options.ranks = ranks;
  options.slots_per_host = 2;
  return options;
}

TEST(HostSourcesTest, NaturalOrder) {
  EXPECT_TRUE(NaturallyBefore("worker-2", "worker-10"));
  EXPECT_FALSE(NaturallyBefore("worker-10", "worker-2"));
  EXPECT_TRUE(NaturallyBefore("a", "a1"));
  EXPECT_TRUE(NaturallyBefore("a9.x", "a10"));
  EXPECT_TRUE(NaturallyBefore("n07", "n8"));
  EXPECT_NE(NaturallyBefore("n7", "n07"), NaturallyBefore("n07", "n7"));
  EXPECT_FALSE(NaturallyBefore("n7", "n7"));
  EXPECT_TRUE(NaturallyBefore("n99999999999999999998", "n99999999999999999999"));
}

TEST(HostSourcesTest, Slurm) {
  EXPECT_EQ(*ParseSlurmHosts("n[001-003,7],m-5", "2(x3),1,4"),
            (Hosts{{"n001", 2}, {"n002", 2}, {"n003", 2}, {"n7", 1}, {"m-5", 4}}));
  EXPECT_EQ(*ParseSlurmHosts("n[9-11]-ib", ""), (Hosts{{"n9-ib", 1}, {"n10-ib", 1}, {"n11-ib", 1}}));
  EXPECT_EQ(*ParseSlurmHosts("one", "8"), (Hosts{{"one", 8}}));
  for (const char* nodes : {"n[3-1]", "n[", "n]1[", "n[1-x]", "n[1][2]", "", "n[1-99999999]", "n[]", "a;b"}) {
    EXPECT_THAT(ParseSlurmHosts(nodes, ""), MatchesStatus(StatusCode::kInvalidArgument, "; try: ")) << nodes;
  }
  for (const char* tasks : {"2", "2(x3)", "2(x", "x", "0(x2)", "2(x2", "2(y2)", "2,"}) {
    EXPECT_THAT(ParseSlurmHosts("a,b", tasks), MatchesStatus(StatusCode::kInvalidArgument, "; try: ")) << tasks;
  }
}

TEST(HostSourcesTest, SageMaker) {
  EXPECT_EQ(*ParseSageMakerHosts(R"({"current_host": "algo-2", "hosts": ["algo-10", "algo-1", "algo-2"]})", 8),
            (Hosts{{"algo-2", 8}, {"algo-1", 8}, {"algo-10", 8}}));
  EXPECT_EQ(*ParseSageMakerHosts(R"({"hosts": ["a"], "network_interface_name": "eth0"})", 1), (Hosts{{"a", 1}}));
  for (const char* text : {"", "{", "[]", "{}", R"({"hosts": []})", R"({"hosts": "a"})", R"({"hosts": ["a", 1]})",
                           R"({"hosts": ["a b"]})"}) {
    EXPECT_THAT(ParseSageMakerHosts(text, 1), MatchesStatus(StatusCode::kInvalidArgument, "; try: ")) << text;
  }
}

TEST(HostSourcesTest, DiscoveredHosts) {
  EXPECT_EQ(*ParseDiscoveredHosts("j-worker-10.j.ns.svc\nj-worker-1.j.ns.svc\n\n  j-worker-9.j.ns.svc\r\n", 4),
            (Hosts{{"j-worker-1.j.ns.svc", 4}, {"j-worker-9.j.ns.svc", 4}, {"j-worker-10.j.ns.svc", 4}}));
  EXPECT_EQ(*ParseDiscoveredHosts("b:3\na", 2), (Hosts{{"a", 2}, {"b", 3}}));
  EXPECT_EQ(*ParseDiscoveredHosts("fd00::1\n[fd00::2]\n[fd00::3]:3\nh max_slots=4\nhost # note: slots=9\n# a:7\n"
                                  "i\tslots=1 # none",
                                  2),
            (Hosts{{"fd00::2", 2}, {"fd00::3", 3}, {"fd00::1", 2}, {"h", 2}, {"host", 2}, {"i", 1}}));
  EXPECT_EQ(*ParseDiscoveredHosts("\xef\xbb\xbf"
                                  "a\nb",
                                  2),
            (Hosts{{"a", 2}, {"b", 2}}));
  EXPECT_EQ(*ParseDiscoveredHosts("", 2), Hosts());
  EXPECT_THAT(ParseDiscoveredHosts("-oProxy=x", 2), MatchesStatus(StatusCode::kInvalidArgument, "discovery-script"));
}

TEST(HostSourcesTest, AScriptIsRunUntilItNamesEnough) {
  const Environment none = FixedEnvironment({});
  EXPECT_EQ(*FindHosts(Discovering("echo b; echo a:1"), none, In(10)), (Hosts{{"a", 1}, {"b", 2}}));
  EXPECT_THAT(FindHosts(Discovering("echo a", 3), none, In(0.2)),
              MatchesStatus(StatusCode::kUnavailable, "1 hosts with 2 slots, and -np asks for 3"));
  EXPECT_THAT(FindHosts(Discovering("exit 3"), none, In(0.2)), MatchesStatus(StatusCode::kUnavailable, "code 3"));
  EXPECT_THAT(FindHosts(Discovering(":"), none, In(0.2)), MatchesStatus(StatusCode::kUnavailable, "0 hosts"));
}

TEST(HostSourcesTest, AScriptReadsNothingOfStandardInput) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]), writing(ends[1]), before(fcntl(0, F_DUPFD_CLOEXEC, 3));
  ASSERT_GE(before.get(), 0);
  ASSERT_EQ(dup2(reading.get(), 0), 0);
  ASSERT_EQ(write(writing.get(), "b\n", 2), 2);
  const absl::StatusOr<std::string> output = RunScript("cat; echo a", In(10));  // would wait for the end of the pipe
  dup2(before.get(), 0);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(*output, "a\n");
}

TEST(HostSourcesTest, AScriptThatHangsIsKilledWithAllOfIts) {
  EXPECT_THAT(RunScript("echo a; exec >&-; sleep 1000", In(0.2)), MatchesStatus(StatusCode::kUnavailable, "in time"));
  EXPECT_THAT(RunScript("sleep 1000 & sleep 1000", In(0.2)), MatchesStatus(StatusCode::kUnavailable, "in time"));
  EXPECT_THAT(RunScript("yes", In(20)), MatchesStatus(StatusCode::kUnavailable, "1 MiB"));
  EXPECT_THAT(RunScript("kill -9 $$", In(20)), MatchesStatus(StatusCode::kUnavailable, "signal 9"));
}

TEST(HostSourcesTest, AutoIsThisHostWhereNothingIs) {
  Options options;
  options.hosts_from = "auto";
  EXPECT_EQ(*FindHosts(options, FixedEnvironment({}), In(1)), Hosts());
  EXPECT_EQ(*FindHosts(options, FixedEnvironment({{"SLURM_JOB_NODELIST", "n[1-2]"}}), In(1)),
            (Hosts{{"n1", 1}, {"n2", 1}}));
  options.hosts_from = "slurm";
  EXPECT_THAT(FindHosts(options, FixedEnvironment({}), In(1)),
              MatchesStatus(StatusCode::kInvalidArgument, "SLURM_JOB_NODELIST is not set"));
}

}  // namespace

}  // namespace gyre::launch
