// The built char_lm through parameter servers, under the built gyrerun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "support/program.h"
#include "support/signals.h"
#include "support/temporary.h"

namespace gyre {
namespace {

using support::Program;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(100);

class CharLmByServers : public testing::Test {
 protected:
  CharLmByServers() {
    std::ofstream text(text_, std::ios::binary);
    const std::vector<std::string> words = {"the ", "ring ", "turns ", "and ", "turns, ", "while ", "it holds.\n"};
    unsigned state = 1;
    for (int i = 0; i < 4000; ++i) {
      state = state * 1664525u + 1013904223u;
      text << words[(state >> 16) % 7 * ((state >> 24) % 7) / 6];
    }
  }

  // Options of gyrerun for two "hosts", which are this one: what leads there runs the command right here.
  std::vector<std::string> OverHosts() const {
    std::ofstream(shell_) << "#!/bin/sh\nexport GYRE_HOST_ID=$1; shift; exec sh -c \"exec $*\"\n";
    std::filesystem::permissions(shell_, std::filesystem::perms::owner_all);
    return {"-H", "a:1,b:1", "--remote-shell", shell_, "--interface", "lo"};
  }

  std::vector<std::string> Command(const std::vector<std::string>& launch,
                                   const std::vector<std::string>& options) const {
    std::vector<std::string> command = {GYRERUN_PATH, "-np", "2"};
    command.insert(command.end(), launch.begin(), launch.end());
    for (const char* word : {CHAR_LM_PATH, "--text", text_.c_str(), "--batch", "300", "--json", "--loss-file"}) {
      command.emplace_back(word);
    }
    command.push_back(losses_);
    command.insert(command.end(), options.begin(), options.end());
    return command;
  }

  static nlohmann::json LastLine(const std::string& out) {
    const size_t end = out.find_last_not_of('\n');
    const size_t start = out.rfind('\n', end);
    return nlohmann::json::parse(out.substr(start == std::string::npos ? 0 : start + 1), nullptr, false);
  }

  double BitsOf(const std::vector<std::string>& launch, const std::vector<std::string>& options) const {
    Program program(Command(launch, options));
    EXPECT_TRUE(program.WaitFor(kLimit)) << program.output();
    EXPECT_EQ(program.exit_code(), 0) << program.output();
    const nlohmann::json json = LastLine(program.out());
    return json.is_object() ? json["heldout_bits_per_char"].get<double>() : -1;
  }

  // How many steps rank 0 has made, so far as they are on the disk; waits until it is so many.
  bool WaitForSteps(int64_t steps) const {
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (std::chrono::steady_clock::now() < deadline) {
      std::ifstream file(losses_);
      int64_t step = 0, last = 0;
      char comma = 0;
      double loss = 0;
      while (file >> step >> comma >> loss) last = step;
      if (last >= steps) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // polls a file: nothing tells of it
    }
    return false;
  }

  // Of the process of that name, as gyrerun has told it; or nothing.
  static std::optional<pid_t> PidOf(const Program& program, const std::string& name) {
    const std::string text = program.output();
    std::smatch found;
    if (!std::regex_search(text, found, std::regex(name + ": pid ([0-9]+)"))) return std::nullopt;
    return std::stoi(found[1]);
  }

  // False: it is not known, or cannot be signalled.
  static bool Signal(const Program& program, const std::string& name, int signal) {
    const std::optional<pid_t> pid = PidOf(program, name);
    return pid && support::SendSignal(*pid, signal);
  }

  const support::TemporaryDirectory folder_;
  const std::string text_ = folder_.path() / "text";
  const std::string losses_ = folder_.path() / "losses";
  const std::string shell_ = folder_.path() / "rsh";
};

TEST_F(CharLmByServers, SynchronousTrainingAgreesWithAllReduce) {
  const double expected = BitsOf({}, {"--steps", "80"});
  EXPECT_LT(expected, 4);
  for (const char* servers : {"1", "3"}) {
    EXPECT_NEAR(BitsOf({"--servers", servers}, {"--steps", "80"}), expected, 1e-3 * expected) << servers;
  }
}

TEST_F(CharLmByServers, OtherConsistenciesLearnToo) {
  const std::vector<std::string> stale = {"--strategy", "ps", "--consistency", "ssp", "--staleness", "4"};
  const std::vector<std::string> loose = {"--strategy", "ps", "--consistency", "async"};
  for (std::vector<std::string> options : {stale, loose}) {
    for (const char* word : {"--steps", "80", "--lr", "0.002"}) options.emplace_back(word);
    EXPECT_LT(BitsOf({"--servers", "2"}, options), 4) << options[3];
  }
}

TEST_F(CharLmByServers, CompressedTrainingLearnsToo) {
  const double dense = BitsOf({"--servers", "2"}, {"--steps", "80", "--momentum"});
  EXPECT_LT(dense, 4);
  for (std::vector<std::string> options :
       {std::vector<std::string>{"--compression", "dgc", "--sparsity", "0.9"},
        {"--compression", "int8", "--values", "f16"},
        {"--compression", "topk", "--sparsity", "0.9", "--values", "int8", "--consistency", "ssp", "--lr", "0.1"}}) {
    const std::string name = options[1];
    for (const char* word : {"--strategy", "ps", "--steps", "80", "--momentum"}) options.emplace_back(word);
    const double bits = BitsOf({"--servers", "2"}, options);
    EXPECT_NEAR(bits, dense, 0.5) << name;
    EXPECT_NE(bits, dense) << name;
  }
}

TEST_F(CharLmByServers, AServerAndARankAreKilledAndTrainingGoesOn) {
  Program program(Command({"--servers", "2", "--restart-rank", "1", "--verbose"}, {"--steps", "1000"}));
  ASSERT_TRUE(WaitForSteps(20)) << program.output();
  ASSERT_TRUE(Signal(program, "server 1", SIGKILL)) << program.output();
  ASSERT_TRUE(program.WaitForOutput("server 1 (pid", kLimit));
  ASSERT_TRUE(WaitForSteps(200)) << program.output();
  ASSERT_TRUE(Signal(program, "rank 1", SIGKILL)) << program.output();
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  EXPECT_THAT(program.err(), HasSubstr("rank 1 (pid"));
  EXPECT_THAT(program.err(), HasSubstr("it is started again, 1 of 1"));
  EXPECT_EQ(LastLine(program.out())["steps"], 1000) << program.output();
}

// As what preempts a machine does it: nobody but gyrerun ends a server for good.
TEST_F(CharLmByServers, AServerThatSomebodyEndsIsStartedAgain) {
  Program program(Command({"--servers", "2", "--restart-rank", "1", "--verbose"}, {"--steps", "300"}));
  ASSERT_TRUE(WaitForSteps(20)) << program.output();
  ASSERT_TRUE(Signal(program, "server 1", SIGTERM)) << program.output();
  ASSERT_TRUE(program.WaitForOutput("exited with code 143; it is started again, 1 of 1", kLimit)) << program.output();
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  EXPECT_EQ(LastLine(program.out())["steps"], 300) << program.output();
}

TEST_F(CharLmByServers, AServerThatSomebodyEndsForGoodEndsTheJob) {
  Program program(Command({"--servers", "1", "--verbose"}, {"--steps", "100000"}));
  ASSERT_TRUE(WaitForSteps(20)) << program.output();
  ASSERT_TRUE(Signal(program, "server 0", SIGTERM)) << program.output();
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 143) << program.output();
  EXPECT_THAT(program.err(), ContainsRegex("gyrerun: server 0 \\(pid [0-9]+\\) exited with code 143"));
}

// The process and the folder of all snapshots: the other server has what it had, and training ends where it would have.
TEST_F(CharLmByServers, AServerThatIsLostWithItsSnapshotsCostsNothingWithAReplica) {
  const std::vector<std::string> steps = {"--steps", "300"};
  const double expected = BitsOf({"--servers", "2"}, steps);
  std::filesystem::remove(losses_);
  Program program(Command({"--servers", "2", "--replicas", "1", "--restart-rank", "1", "--verbose"}, steps));
  ASSERT_TRUE(WaitForSteps(50)) << program.output();
  const std::optional<pid_t> server = PidOf(program, "server 1");
  ASSERT_TRUE(server) << program.output();
  std::ifstream file("/proc/" + std::to_string(*server) + "/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  ASSERT_EQ(words.size(), 5u) << "gyrerun serve NUMBER LIFE FOLDER";
  std::filesystem::rename(words[4], folder_.path() / "lost");
  ASSERT_TRUE(support::SendSignal(*server, SIGKILL));
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  EXPECT_THAT(program.err(), HasSubstr("it is started again, 1 of 1"));
  EXPECT_EQ(LastLine(program.out())["heldout_bits_per_char"], expected) << program.output();
}

TEST_F(CharLmByServers, OverHostsTheyAreSpreadAndStartedAgainWhereTheyWere) {
  std::vector<std::string> launch = OverHosts();
  launch.insert(launch.end(), {"--servers", "2", "--restart-rank", "1", "--verbose"});
  Program program(Command(launch, {"--steps", "600"}));
  ASSERT_TRUE(WaitForSteps(20)) << program.output();
  ASSERT_TRUE(Signal(program, "server 1", SIGKILL)) << program.output();
  ASSERT_TRUE(program.WaitForOutput("host b: server 1 (pid", kLimit)) << program.output();
  ASSERT_TRUE(WaitForSteps(100)) << program.output();
  ASSERT_TRUE(Signal(program, "rank 1", SIGKILL)) << program.output();
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  EXPECT_THAT(program.err(), HasSubstr("host b: rank 1 (pid"));
  EXPECT_THAT(program.err(), HasSubstr("it is started again, 1 of 1"));
  EXPECT_THAT(program.err(), ContainsRegex("server 0: pid [0-9]+ on a"));
  EXPECT_EQ(LastLine(program.out())["steps"], 600) << program.output();
}

// The hosts of servers alone need not have the program.
TEST_F(CharLmByServers, OverHostsServersHaveHostsOfTheirOwn) {
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
  ASSERT_TRUE(job.WaitFor(kLimit)) << job.output();
  EXPECT_EQ(job.exit_code(), 0) << job.output();
  EXPECT_EQ(LastLine(job.out())["steps"], 300) << job.output();
}

TEST_F(CharLmByServers, OverHostsOneBesideEachRankAgreesWithAllReduce) {
  const double expected = BitsOf({}, {"--steps", "40"});
  std::vector<std::string> launch = OverHosts();
  launch.emplace_back("--colocate-servers");
  EXPECT_NEAR(BitsOf(launch, {"--steps", "40"}), expected, 1e-3 * expected);
}

TEST_F(CharLmByServers, OverHostsWhoDiesAgainAndAgainEndsTheJob) {
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

TEST_F(CharLmByServers, AServerThatIsStoppedDoesNotHoldUpTheEnd) {
  Program program({GYRERUN_PATH, "-np", "1", "--servers", "1", "--grace", "0.2", "--verbose", "sh", "-c",
                   "while [ ! -e $0 ]; do sleep 0.02; done", losses_});
  ASSERT_TRUE(program.WaitForOutput("rank 0: pid", kLimit));
  ASSERT_TRUE(Signal(program, "server 0", SIGSTOP)) << program.output();
  std::ofstream(losses_) << "go on";
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
}

TEST_F(CharLmByServers, WhoDiesAgainAndAgainEndsTheJob) {
  Program program({GYRERUN_PATH, "-np", "2", "--servers", "1", "--restart-rank", "2", "sh", "-c",
                   "[ $GYRE_RANK = 0 ] && exit 3; sleep 100"});
  ASSERT_TRUE(program.WaitFor(kLimit)) << program.output();
  EXPECT_EQ(program.exit_code(), 3);
  EXPECT_THAT(program.err(), HasSubstr("it is started again, 2 of 2"));
  EXPECT_THAT(program.err(), HasSubstr("rank 0 (pid"));
}

}  // namespace
}  // namespace gyre
