// Ranks whose store refuses them or is not there, however they were started: the status of Runtime::Create is the one
// line that names the host, the stage, the cause and what to try.
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "net/endpoint.h"
#include "net/socket.h"
#include "remote_fixture.h"
#include "support/program.h"

namespace gyre::launch {

namespace {

using std::chrono::seconds;
using Variables = std::map<std::string, std::optional<std::string>>;

Variables Torchrun(int rank, const Endpoint& store) {
  return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"},         {"LOCAL_RANK", std::to_string(rank)},
          {"LOCAL_WORLD_SIZE", "2"},      {"MASTER_ADDR", store.host}, {"MASTER_PORT", std::to_string(store.port)},
          {"GYRE_START_TIMEOUT", "3"}};
}

Variables Mpirun(int rank, const Endpoint& store) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"GYRE_STORE", ToString(store)},
          {"GYRE_START_TIMEOUT", "3"}};
}

struct Style {
  const char* name;
  Variables (*variables)(int rank, const Endpoint& store);
};

class RankRefusal : public testing::TestWithParam<Style> {
 protected:
  // A port of this machine that was free just now.
  static Endpoint FreePort() {
    const auto listener = ListenTcp({"127.0.0.1", 0}, 1, std::chrono::steady_clock::now() + seconds(5));
    return LocalEndpoint(listener->get()).value();
  }

  // A file with a secret of its own.
  std::string Secret(const std::string& name) const {
    const std::string path = folder_.path() / name;
    std::ofstream(path) << "the secret of " << name << ", long enough";
    std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return path;
  }

  support::Program Start(int rank, const Endpoint& store, const std::string& secret) const {
    Variables variables = GetParam().variables(rank, store);
    variables["GYRE_SECRET_FILE"] = secret;
    variables["XDG_RUNTIME_DIR"] = folder_.path();
    return support::Program({JOB_RANK_PATH}, {.environment = std::move(variables), .directory = {}});
  }

  static void ExpectEnd(support::Program& rank, const std::string& line) {
    ASSERT_TRUE(rank.WaitFor(seconds(20)));
    EXPECT_EQ(rank.exit_code(), 2);
    EXPECT_EQ(rank.out(), "");
    EXPECT_EQ(rank.err(), line + "\n");
  }

  support::TemporaryDirectory folder_;
};

TEST_P(RankRefusal, ARefusedPort) {
  const Endpoint store = FreePort();
  support::Program rank = Start(1, store, Secret("one"));
  const std::string at = ToString(store);
  ExpectEnd(rank, "rank 1 of 2 could not join: the store at " + at + " was not reached in time: " + at +
                      ": connect: Connection refused; try: to start what is to listen there, or the right address and "
                      "port");
}

TEST_P(RankRefusal, AnUnknownHost) {
  support::Program rank = Start(1, {"no-such-host.invalid", 1}, Secret("one"));
  ASSERT_TRUE(rank.WaitFor(seconds(20)));
  EXPECT_EQ(rank.exit_code(), 2);
  EXPECT_TRUE(Has(rank.err(), "rank 1 of 2 could not join: the store at no-such-host.invalid:1 ")) << rank.err();
  EXPECT_TRUE(Has(rank.err(), "resolve no-such-host.invalid: ") && Has(rank.err(), "; try: ")) << rank.err();
  EXPECT_EQ(rank.err().find('\n'), rank.err().size() - 1) << rank.err();
}

TEST_P(RankRefusal, AWrongSecret) {
  const Endpoint store = FreePort();
  support::Program first = Start(0, store, Secret("one"));
  support::Program second = Start(1, store, Secret("other"));
  ExpectEnd(second,
            "rank 1 of 2 could not join: the store at " + ToString(store) +
                ": the store holds another secret than rank 1; try: to start both from one launcher, or the same "
                "GYRE_SECRET_FILE for both");
  ASSERT_TRUE(first.WaitFor(seconds(20)));
  EXPECT_TRUE(first.err().starts_with("rank 0 of 2 could not join: gather \"join\": rank 1 of 2 did not come within "))
      << first.err();
  EXPECT_TRUE(first.err().ends_with(
      " s; 1 attempt to join was refused: 127.0.0.1: rank 1 holds another secret than the store; try: to start both "
      "from one launcher, or the same GYRE_SECRET_FILE for both\n"))
      << first.err();
  EXPECT_EQ(first.err().find('\n'), first.err().size() - 1) << first.err();
}

INSTANTIATE_TEST_SUITE_P(Launchers, RankRefusal, testing::Values(Style{"Torchrun", Torchrun}, Style{"Mpirun", Mpirun}),
                         [](const auto& info) { return info.param.name; });

// Under gyrerun the rank's own exit code is gyrerun's, and one line of it says which rank on which host.
TEST_F(RemoteTest, ARankWithAnotherSecret) {
  const std::string secret = folder_.path() / "secret";
  std::ofstream(secret) << "not what gyrerun handed down";
  EXPECT_EQ(chmod(secret.c_str(), 0600), 0);
  const std::string script =
      "test $GYRE_RANK = 0 && exec " JOB_RANK_PATH "; exec env -u GYRE_SECRET_FD GYRE_SECRET_FILE=" + secret +
      " " JOB_RANK_PATH;
  const Outcome outcome = RunToEnd(Over("a,b", PlainShell(), {"--settle", "0.1"}, {"sh", "-c", script}));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "rank 1 of 2 could not join: the store at 127.0.0.1:")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "the store holds another secret than rank 1; try: ")) << outcome.err;
  const size_t own = outcome.err.find("gyrerun: rank 1 on b (pid ");
  ASSERT_NE(own, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("gyrerun: "), own) << outcome.err;
  const size_t lines = outcome.err.find("; exit code 2\ngyrerun: the last lines of rank 1:\n", own);
  ASSERT_NE(lines, std::string::npos) << outcome.err;
  EXPECT_TRUE(Has(outcome.err.substr(lines), "\ngyrerun:   rank 1 of 2 could not join: ")) << outcome.err;
}

}  // namespace

}  // namespace gyre::launch
