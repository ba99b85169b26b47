// gyre-bench-gpu as a whole: on a GPU what it measures is right; without one, it says so, and so does this test.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "support/program.h"
#include "support/temporary.h"

namespace gyre::bench {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr int kExitUsage = 64, kExitNoGpu = 77;

class BenchGpuProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    support::Program list({GYRE_BENCH_GPU_PATH, "list"});
    ASSERT_TRUE(list.WaitFor(std::chrono::seconds(60))) << list.output();
    if (list.exit_code() == 0) {
      EXPECT_THAT(list.out(), ContainsRegex("^GPU 0: .*, [0-9]+ multiprocessors"));
      const std::string out = list.out();
      gpus_ = static_cast<int>(std::count(out.begin(), out.end(), '\n'));
      return;
    }
    EXPECT_EQ(list.out(), "");
    EXPECT_EQ(list.exit_code(), kExitNoGpu) << list.output();
    EXPECT_THAT(list.err(), ContainsRegex("^gyre-bench gpu: UNAVAILABLE: looking for GPUs: .+"));
    GTEST_SKIP() << list.err();
  }

  // The JSON lines of `gyre-bench gpu`, on so many ranks.
  static std::vector<nlohmann::json> Lines(int ranks, const Words& arguments) {
    const support::TemporaryDirectory folder;
    const std::string path = folder.path() / "lines.json";
    Words command = {GYRERUN_PATH, "-np", std::to_string(ranks), GYRE_BENCH_GPU_PATH};
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.insert(command.end(), {"--json", path});
    support::Program program(command);
    EXPECT_TRUE(program.WaitFor(std::chrono::seconds(60))) << program.output();
    EXPECT_EQ(program.exit_code(), 0) << program.output();
    std::vector<nlohmann::json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  int gpus_ = 0;  // of this machine
};

TEST_F(BenchGpuProgram, MeasuresKernelsBesideCopies) {
  const auto lines = Lines(1, {"kernels", "--iters", "3"});
  EXPECT_GE(lines.size(), 60u);
  for (const auto& line : lines) {
    EXPECT_EQ(line["right"], true) << line;
    // What sparse payloads move is too little to fill a GPU.
    EXPECT_GT(line["share_of_copy"], line["group"] == "sparse payloads" ? 0.0 : 0.02) << line;
    EXPECT_LT(line["share_of_copy"], 3) << line;
  }
}

TEST_F(BenchGpuProgram, KernelsAreChosenByTheirNames) {
  EXPECT_EQ(Lines(1, {"kernels", "--iters", "2", "--only", "update, "}).size(), 5u);
  support::Program none({GYRE_BENCH_GPU_PATH, "kernels", "--only", "nonsense"});
  ASSERT_TRUE(none.WaitFor(std::chrono::seconds(60))) << none.output();
  EXPECT_EQ(none.exit_code(), kExitUsage) << none.output();
  EXPECT_THAT(none.err(), HasSubstr("there is no kernel with \"nonsense\" in its name"));
}

TEST_F(BenchGpuProgram, CollectivesOfRanksOnOneGpuAreRight) {
  for (const char* operation : {"allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall"}) {
    for (const int ranks : {1, 2, 3}) {
      const auto lines =
          Lines(ranks, {operation, "-b", "1K", "-e", "1M", "-f", "32", "--iters", "2", "--buffers", "both"});
      EXPECT_FALSE(lines.empty()) << operation;
      for (const auto& line : lines) EXPECT_EQ(line["wrong"], 0) << line;
    }
  }
}

TEST_F(BenchGpuProgram, CollectivesAreMeasuredBesideCopies) {
  std::set<std::string> libraries;
  for (const auto& line :
       Lines(2, {"allreduce", "-b", "1M", "-e", "1M", "--iters", "2", "--against-copy", "--against-host"})) {
    libraries.insert(line["lib"]);
    const bool copies = line["lib"] == "copy" || line["lib"] == "host-copy";
    EXPECT_EQ(line["wrong"].is_null(), copies) << line;
    EXPECT_EQ(line["ratio"].is_null(), line["lib"] == "gyre") << line;
  }
  EXPECT_EQ(libraries, (std::set<std::string>{"gyre", "copy", "host-copy", "gyre-host"}));
}

TEST_F(BenchGpuProgram, CompressedStepsAreAlikeOnAllRanks) {
  const auto lines = Lines(2, {"step", "--dtype", "f32", "--steps", "3", "--compression", "int8,dgc:0.999"});
  EXPECT_EQ(lines.size(), gpus_ < 2 ? 4u : 5u);  // by graphs: as in StepsAreRight
  for (const auto& line : lines) EXPECT_EQ(line["compressed_calls"] > 0, line["compression"] != "none") << line;
}

// In two dtypes; by graphs only where each rank has a GPU of its own.
TEST_F(BenchGpuProgram, StepsAreRight) {
  for (const int ranks : {1, 2}) {
    const auto lines = Lines(ranks, {"step", "--steps", "3"});
    EXPECT_EQ(lines.size(), gpus_ < ranks ? 4u : 6u);
    for (const auto& line : lines) EXPECT_GT(line["host_us_med"], 0) << line;
    const auto by_graphs = std::ranges::count_if(lines, [](const auto& line) { return line["graphs"] == true; });
    EXPECT_EQ(by_graphs, gpus_ < ranks ? 0 : 2);
  }
}

TEST(BenchGpuCommand, WrongUsageIsTheProgramsOwn) {
  for (const Words& wrong :
       {Words{"--nonsense"}, {"allreduce", "--dtype"}, {"kernels", "--iters", "0"}, {"kernels", "--only"}, {}}) {
    Words command = {GYRE_BENCH_GPU_PATH};
    command.insert(command.end(), wrong.begin(), wrong.end());
    support::Program program(command);
    ASSERT_TRUE(program.WaitFor(std::chrono::seconds(60))) << program.output();
    EXPECT_EQ(program.exit_code(), kExitUsage) << program.output();
  }
  for (const auto& [words, word] : {std::pair(Words{"--help"}, "kernels"), {Words{"kernels", "--help"}, "--only"}}) {
    Words command = {GYRE_BENCH_GPU_PATH};
    command.insert(command.end(), words.begin(), words.end());
    support::Program help(command);
    ASSERT_TRUE(help.WaitFor(std::chrono::seconds(60))) << help.output();
    EXPECT_EQ(help.exit_code(), 0);
    EXPECT_THAT(help.out(), HasSubstr(word));
  }
}

}  // namespace
}  // namespace gyre::bench
