// Training through parameter servers over several "hosts", which are all this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "examples/servers_fixture.h"

namespace gyre {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class CharLmByServersOverHosts : public CharLmByServers {
 protected:
  // Options of gyrerun for two "hosts": what leads there runs the command right here.
  std::vector<std::string> OverHosts() const {
    std::ofstream(shell_) << "#!/bin/sh\nexport GYRE_HOST_ID=$1; shift; exec sh -c \"exec $*\"\n";
    std::filesystem::permissions(shell_, std::filesystem::perms::owner_all);
    return {"-H", "a:1,b:1", "--remote-shell", shell_, "--interface", "lo"};
  }

  const std::string shell_ = folder_.path() / "rsh";
};

TEST_F(CharLmByServersOverHosts, TheyAreSpreadAndStartedAgainWhereTheyWere) {
  std::vector<std::string> launch = OverHosts();
  launch.insert(launch.end(), {"--servers", "2", "--restart-rank", "1", "--verbose"});
  Program program(Command(launch, {"--steps", "600"}));
  ASSERT_TRUE(WaitForSteps(20)) << program.output();
  ASSERT_TRUE(Signal(program, "server 1", SIGKILL)) << program.output();
  ASSERT_TRUE(program.WaitForOutput("host b: server 1 (pid", kLimit)) << program.output();
  ASSERT_TRUE(WaitForSteps(100)) << program.output();
  ASSERT_TRUE(Signal(program, "rank 1", SIGKILL)) << program.output();
  ExpectEnd(program, 600);
  EXPECT_THAT(program.err(), HasSubstr("host b: rank 1 (pid"));
  EXPECT_THAT(program.err(), HasSubstr("it is started again, 1 of 1"));
  EXPECT_THAT(program.err(), ContainsRegex("server 0: pid [0-9]+ on a"));
}

// The hosts of servers alone need not have the program.
TEST_F(CharLmByServersOverHosts, ServersHaveHostsOfTheirOwn) {
  const std::filesystem::path program(CHAR_LM_PATH);
  std::vector<std::string> launch = OverHosts();
  std::ofstream(shell_) << "#!/bin/sh\ncase $1 in a | b) PATH=" << program.parent_path().string()
                        << ":$PATH; esac\nexport GYRE_HOST_ID=$1; shift; exec sh -c \"exec $*\"\n";
  launch.insert(launch.end(), {"--servers", "2", "--server-hosts", "c,d", "--restart-rank", "1", "--verbose"});
  std::vector<std::string> command = Command(launch, {"--steps", "300"});
  std::ranges::replace(command, program.string(), program.filename().string());
  Program job(command);
  ASSERT_TRUE(WaitForSteps(20)) << job.output();
  EXPECT_THAT(job.err(), HasSubstr("host c: no rank: "));
  EXPECT_THAT(job.err(), ContainsRegex("server 0: pid [0-9]+ on c"));
  ASSERT_TRUE(Signal(job, "server 1", SIGKILL)) << job.output();
  ASSERT_TRUE(job.WaitForOutput("host d: server 1 (pid", kLimit)) << job.output();
  ExpectEnd(job, 300);
}

TEST_F(CharLmByServersOverHosts, OneBesideEachRankAgreesWithAllReduce) {
  const double expected = BitsOf({}, {"--steps", "40"});
  std::vector<std::string> launch = OverHosts();
  launch.emplace_back("--colocate-servers");
  EXPECT_NEAR(BitsOf(launch, {"--steps", "40"}), expected, 1e-3 * expected);
}

TEST_F(CharLmByServersOverHosts, WhoDiesAgainAndAgainEndsTheJob) {
  std::vector<std::string> command = {GYRERUN_PATH};
  for (const std::string& word : OverHosts()) command.push_back(word);
  for (const char* word : {"--servers", "1", "--restart-rank", "2", "--settle", "0.1", "--tag-output", "sh", "-c",
                           "printf \"$GYRE_RANK unfinished\"; [ $GYRE_RANK = 0 ] && exit 3; sleep 100"}) {
    command.emplace_back(word);
  }
  Program program(command);
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 3) << program.output();
  EXPECT_THAT(program.err(), HasSubstr("it is started again, 2 of 2"));
  EXPECT_THAT(program.err(), HasSubstr("rank 0 on a (pid"));
  const std::string line = "[0@a]<stdout>:0 unfinished\n";  // of each life
  EXPECT_THAT(program.out(), HasSubstr(line + line + line)) << program.output();
}

}  // namespace
}  // namespace gyre
