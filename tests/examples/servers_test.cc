// What training through parameter servers learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "examples/servers_fixture.h"

namespace gyre {
namespace {

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

// The folder for temporary files is on a disk that is smaller than a snapshot.
TEST_F(CharLmByServers, AFullDiskIsToldAndTrainingGoesOn) {
  const std::string disk = folder_.path() / "disk";
  std::filesystem::create_directory(disk);
  const std::vector<std::string> on_small_disk = {
      "unshare", "-m", "sh", "-c", R"(mount -t tmpfs -o size=512k none "$0" && export TMPDIR=$0 && exec "$@")", disk};
  const auto run = [&](const std::vector<std::string>& command) {
    std::vector<std::string> all = on_small_disk;
    all.insert(all.end(), command.begin(), command.end());
    return all;
  };
  Program probe(run({"true"}));
  ASSERT_TRUE(probe.WaitFor(kLimit));
  if (probe.exit_code() != 0) GTEST_SKIP() << "a disk cannot be mounted here: " << probe.output();
  Program program(run(Command({"--servers", "1"}, {"--steps", "20"})));
  ExpectEnd(program, 20);
  EXPECT_THAT(program.err(), testing::ContainsRegex("gyre server 0: snapshot: .*No space left on device"));
}

}  // namespace
}  // namespace gyre
