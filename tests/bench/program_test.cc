// gyre-bench as a whole: every subcommand, alone and against each peer that this build has.
#include "support/program.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "support/temporary.h"

namespace gyre::bench {

namespace {

using Words = std::vector<std::string>;

const Words kOperations = {"allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall"};

Words Gyrerun(int ranks) {
  return {GYRERUN_PATH, "-np", std::to_string(ranks)};
}

// Runs gyre-bench under the launcher and returns its JSON lines.
std::vector<nlohmann::json> Lines(const Words& launcher, const Words& arguments) {
  const support::TemporaryDirectory folder;
  const std::string path = folder.path() / "lines.json";
  Words command = launcher;
  command.emplace_back(GYRE_BENCH_PATH);
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

// Small sizes, few samples.
Words Quick(const std::string& subcommand, const Words& more = {}) {
  Words words = {subcommand, "-b", "1K", "-e", "32K", "-f", "32", "--iters", "2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The number of lines of each library, each of which must be plausible and right.
std::map<std::string, int> CheckedLines(const std::vector<nlohmann::json>& lines, const std::string& operation,
                                        int ranks) {
  std::map<std::string, int> count;
  for (const auto& line : lines) {
    ++count[line["lib"]];
    EXPECT_EQ(line["op"], operation) << line;
    EXPECT_EQ(line["ranks"], ranks) << line;
    EXPECT_EQ(line["wrong"], 0) << line;
    EXPECT_GT(line["time_us_min"], 0) << line;
    EXPECT_LE(line["time_us_min"], line["time_us_med"]) << line;
    EXPECT_LE(line["time_us_med"], line["time_us_p99"]) << line;
    EXPECT_GT(line["bytes"], 1000) << line;
    EXPECT_EQ(line["ratio"].is_null(), line["lib"] == "gyre") << line;
    EXPECT_TRUE(line["wire_bytes"].is_null()) << line << ": one host";
  }
  return count;
}

// Lines of two sizes, for a library that has both forms, or in place alone where it has one.
int FormsOf(const std::string& operation) {
  return operation == "broadcast" ? 2 : 4;
}

TEST(BenchProgram, EveryOperation) {
  for (const int ranks : {2, 3}) {
    for (const std::string& operation : kOperations) {
      const auto count = CheckedLines(Lines(Gyrerun(ranks), Quick(operation)), operation, ranks);
      EXPECT_THAT(count, testing::ElementsAre(testing::Pair("gyre", FormsOf(operation)))) << operation;
    }
  }
}

// Two hosts of two ranks, as far as Gyre is told. What the host that sends most has to send of S bytes, by operation;
// the rest is headers.
TEST(BenchProgram, WireBytesOfHosts) {
  Words launcher = Gyrerun(4);
  launcher.insert(launcher.end(), {"sh", "-c", "GYRE_HOST_ID=h$((GYRE_RANK / 2)) exec \"$@\"", "sh"});
  const std::map<std::string, double> shares = {
      {"allreduce", 1.0}, {"reduce_scatter", 0.5}, {"allgather", 0.5}, {"broadcast", 1.0}, {"alltoall", 1.0}};
  for (const auto& [operation, share] : shares) {
    const auto lines = Lines(launcher, Quick(operation));
    EXPECT_EQ(lines.size(), FormsOf(operation));
    for (const auto& line : lines) {
      EXPECT_EQ(line["hosts"], 2) << line;
      const double least = share * double{line["bytes"]};
      EXPECT_GE(line["wire_bytes"], least) << line;
      EXPECT_LE(line["wire_bytes"], least + 8 * 64 + 64) << line;
    }
  }
}

// Hosts that look as if they had RDMA, under another /sys/class and /dev; `more`: shell commands that add to the
// former. Empty where that may not be done. Else what three ranks on three hosts say.
std::optional<std::string> WithMadeUpRdma(const std::string& more) {
  const std::string script = absl::StrCat(
      "set -e; mount -t tmpfs none /mnt; cd /mnt; mkdir -p infiniband/mlx5_0/ports/1 infiniband_verbs/uverbs0 "
      "dev/infiniband dev/shm; echo '1: CA' > infiniband/mlx5_0/node_type; echo '4: ACTIVE' > "
      "infiniband/mlx5_0/ports/1/state; echo mlx5_0 > infiniband_verbs/uverbs0/ibdev; cp -a /dev/null /dev/zero "
      "/dev/random /dev/urandom dev; touch dev/infiniband/uverbs0; ",
      more, "; mount --bind dev /dev; mount --bind . /sys/class; exec \"$@\"");
  if (support::Program probe({"unshare", "-m", "sh", "-c", script, "sh", "true"});
      !probe.WaitFor(std::chrono::seconds(10)) || probe.exit_code() != 0) {
    return std::nullopt;
  }
  const std::string host = "GYRE_HOST_ID=h$GYRE_RANK GYRE_LOG_LEVEL=info exec \"$@\"";
  support::Program program({"unshare",   "-m", "sh",  "-c", script, "sh",      GYRERUN_PATH,
                            "-np",       "3",  "sh",  "-c", host,   "sh",      GYRE_BENCH_PATH,
                            "allreduce", "-b", "64K", "-e", "64K",  "--iters", "2"});
  EXPECT_TRUE(program.WaitFor(std::chrono::seconds(60))) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  return program.output();
}

TEST(BenchProgram, UcxIsJudgedWhereThereSeemsToBeRdma) {
  if (!HAS_UCX) GTEST_SKIP() << "this build has no UCX (no development package, or a sanitizer)";
  const auto said = WithMadeUpRdma("cp -a /sys/class/net .");
  if (!said) GTEST_SKIP() << "no permission for a mount namespace";
  const std::vector<std::string> parts = absl::StrSplit(*said, "data between hosts go by ");
  EXPECT_EQ(parts.size(), 2) << *said << ": once";
  EXPECT_TRUE(absl::StrContains(*said, " by UCX, ")) << *said << ": whichever is faster";
}

// UCX finds no network at all.
TEST(BenchProgram, UcxThatDoesNotWorkLeavesItToTcp) {
  if (!HAS_UCX) GTEST_SKIP() << "this build has no UCX (no development package, or a sanitizer)";
  const auto said = WithMadeUpRdma("true");
  if (!said) GTEST_SKIP() << "no permission for a mount namespace";
  EXPECT_TRUE(absl::StrContains(*said, "data between hosts go by TCP: rank ")) << *said;
  EXPECT_TRUE(absl::StrContains(*said, "UCX does not reach the host")) << *said;
}

TEST(BenchProgram, BothKindsOfBuffersAndOtherTypes) {
  for (const Words& more : {Words{"--dtype", "i64", "--op", "max"}, {"--dtype", "bf16", "--op", "average"}}) {
    Words arguments = Quick("allreduce", more);
    arguments.insert(arguments.end(), {"--buffers", "both"});
    const auto lines = Lines(Gyrerun(3), arguments);
    EXPECT_EQ(CheckedLines(lines, "allreduce", 3)["gyre"], 8);
    for (const auto& line : lines) EXPECT_EQ(line["dtype"], more[1]);
  }
  for (const auto& line : Lines(Gyrerun(3), Quick("broadcast", {"--root", "2"}))) EXPECT_EQ(line["root"], 2);
}

TEST(BenchProgram, AgainstTheBound) {
  for (const int ranks : {2, 3}) {
    const auto lines = Lines(Gyrerun(ranks), Quick("allreduce", {"--against", "bound"}));
    EXPECT_THAT(CheckedLines(lines, "allreduce", ranks),
                testing::ElementsAre(testing::Pair("bound", 4), testing::Pair("gyre", 4)));
  }
}

TEST(BenchProgram, Memory) {
  for (const int ranks : {1, 2, 3}) {
    const auto lines = Lines(Gyrerun(ranks), Quick("memory"));
    ASSERT_EQ(lines.size(), 6);
    for (const auto& line : lines) {
      EXPECT_EQ(line["wrong"], 0) << line;
      EXPECT_EQ(line["op"], line["lib"] == "copy" ? "copy" : "allreduce") << line;
      EXPECT_GT(line["algbw_gbs"], 0) << line;
    }
  }
}

TEST(BenchProgram, Kernels) {
  if (!HAS_KERNELS) GTEST_SKIP() << "this build found no Google Benchmark";
  for (const int ranks : {1, 2, 3}) {
    const auto lines = Lines(Gyrerun(ranks), {"kernels", "--filter", "^(f32|bf16)/[28]/32768", "--min-time", "0.01"});
    ASSERT_EQ(lines.size(), 4);
    for (const auto& line : lines) EXPECT_GT(line["elements_per_s"], 0) << line;
  }
}

TEST(BenchProgram, Price) {
  const Words arguments = {"price", "--operation", "all", "--ranks",     "6,16384", "-b",          "64K", "-e",
                           "64K",   "--latency",   "10",  "--bandwidth", "100",     "--reduction", "20"};
  const auto lines = Lines({}, arguments);
  ASSERT_EQ(lines.size(), 36) << "18 algorithms for two numbers of ranks";
  for (const auto& line : lines) {
    EXPECT_EQ(line["bytes"], line["op"] == "barrier" ? 0 : 65536) << line;
    EXPECT_GT(line["time_us"], 10) << line;
    if (line["algorithm"] != "ring") continue;
    EXPECT_NEAR(line["ratio"], 1, 1e-3) << line;
    EXPECT_GT(line["time_us"], line["ranks"] == 6 ? 50 : 160'000) << line;
  }
}

TEST(BenchProgram, ParameterServersBesideAllReduce) {
  const support::TemporaryDirectory folder;
  const std::string page = folder.path() / "page.html";
  const auto lines =
      Lines({}, {"ps-vs-allreduce", "--model", "vgg16,googlenet", "--workers", "8,64", "--report", page});
  ASSERT_EQ(lines.size(), 2 * (15 + 15 + 11 + 16)) << "strategies of one and eight workers a host; one host has fewer";
  for (const auto& line : lines) EXPECT_GT(line["images_per_s"], 0) << line;
  std::ifstream file(page);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(text, testing::HasSubstr("</html>"));
}

// What advise prints.
std::string Advised(const Words& arguments) {
  Words command = {GYRE_BENCH_PATH, "advise"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  support::Program program(command);
  EXPECT_TRUE(program.WaitFor(std::chrono::seconds(60))) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  return program.output();
}

TEST(BenchProgram, AdviceByHostsOrWorkers) {
  const std::string advice = Advised({"--hosts", "4", "--workers-per-host", "2", "--bandwidth", "10"});
  EXPECT_THAT(advice, testing::HasSubstr("4 hosts of 2 workers, 20 us, 10 Gbit/s"));
  EXPECT_EQ(Advised({"--workers", "8", "--workers-per-host", "2", "--link", "10gbit"}), advice);
  EXPECT_EQ(Advised({"--workers", "8", "--workers-per-host", "2", "--link", "10000mbit"}), advice);
  EXPECT_THAT(advice, testing::HasSubstr("servers beside workers, sparse pushes"));
  EXPECT_THAT(Advised({"--sparse", "1"}),
              testing::ContainsRegex("where loss is borne: servers apart, compressed, .* with [0-9]+ hosts to spare"));
  EXPECT_THAT(Advised({"--compression", "1", "--sparse", "1"}), testing::Not(testing::HasSubstr("loss")));
  const std::string alone = Advised({"--hosts", "1"});
  EXPECT_THAT(alone, testing::Not(testing::AnyOf(testing::HasSubstr("nan"), testing::HasSubstr("inf")))) << alone;
}

TEST(BenchProgram, StepsThroughServers) {
  for (const std::string consistency : {"bsp", "ssp", "async"}) {
    Words launcher = Gyrerun(2);
    launcher.insert(launcher.end(), {"--servers", "1"});
    const auto lines = Lines(launcher, {"ps-steps", "--consistency", consistency, "--compute-ms", "5", "--seconds",
                                        "0.5", "--permanent", "1", "--elements", "1001"});
    ASSERT_EQ(lines.size(), 1);
    EXPECT_EQ(lines[0]["workers"], 2);
    EXPECT_GE(lines[0]["steps"], 2) << lines[0];
    EXPECT_GT(lines[0]["predicted_steps_per_s"], 0) << lines[0];
    EXPECT_TRUE(lines[0]["images_per_s"].is_null()) << lines[0] << ": floats are no images";
    if (consistency != "bsp") continue;
    EXPECT_LE(lines[0]["steps_per_s"], 40) << lines[0] << ": the slow one takes 50 ms a step";
  }
}

// It checks itself what the servers hold.
TEST(BenchProgram, RowsThroughServers) {
  Words words = Gyrerun(3);
  words.insert(words.end(), {"--servers", "2", GYRE_BENCH_PATH, "ps", "--rows", "1000000", "--columns", "5", "--batch",
                             "700", "--iters", "3"});
  support::Program program(words);
  EXPECT_TRUE(program.WaitFor(std::chrono::seconds(60))) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  EXPECT_THAT(program.output(), testing::HasSubstr("1000000 rows of 5 floats"));
}

// A step of the smallest model, with few samples.
Words QuickStep(const Words& more) {
  Words words = {"step", "--model", "googlenet", "--steps", "2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Library and buffers of each line, each of which must be plausible and right.
std::vector<std::string> CheckedSteps(const std::vector<nlohmann::json>& lines, int ranks) {
  std::vector<std::string> libs;
  for (const auto& line : lines) {
    libs.push_back(absl::StrCat(std::string(line["lib"]), " ", std::string(line["buffers"])));
    EXPECT_EQ(line["model"], "googlenet") << line;
    EXPECT_EQ(line["ranks"], ranks) << line;
    EXPECT_EQ(line["hosts"], 1) << line;
    EXPECT_EQ(line["bytes"], 4 * 13'004'888) << line;
    EXPECT_EQ(line["wrong"], 0) << line;
    EXPECT_GT(line["time_us_min"], 0) << line;
    EXPECT_LE(line["time_us_min"], line["time_us_med"]) << line;
    EXPECT_LE(line["time_us_med"], line["time_us_p99"]) << line;
  }
  return libs;
}

TEST(BenchProgram, StepOfAModel) {
  const auto lines = Lines(Gyrerun(2), QuickStep({"--buffers", "arena,plain", "--compute", "sleep", "--batch", "1",
                                                  "--against", "gyre-per-tensor"}));
  EXPECT_THAT(CheckedSteps(lines, 2),
              testing::ElementsAre("gyre arena", "gyre-per-tensor arena", "gyre plain", "gyre-per-tensor plain"));
  for (const auto& line : lines) {
    EXPECT_GE(line["compute_us"], 3 * 1e6 * 3.0e9 / 4e12) << line << ": forward and backward at 4,000 GFLOP/s";
    EXPECT_GT(line["efficiency"], 0) << line;
  }
}

TEST(BenchProgram, StepWhoseForwardPassWaitsLayerByLayer) {
  const auto lines = Lines(Gyrerun(2), QuickStep({"--compute", "sleep", "--batch", "1", "--early-forward", "--against",
                                                  "gyre-by-readiness,gyre-wait-for-all"}));
  EXPECT_THAT(CheckedSteps(lines, 2),
              testing::ElementsAre("gyre arena", "gyre-by-readiness arena", "gyre-wait-for-all arena"));
}

bool Has(const std::string& peer) {
  return absl::StrContains(PEERS, peer);
}

TEST(BenchProgram, AgainstGloo) {
  if (!Has("gloo")) GTEST_SKIP() << "this build has no Gloo (no development package, or a sanitizer)";
  for (const int ranks : {2, 3}) {
    for (const std::string& operation : kOperations) {
      auto count = CheckedLines(Lines(Gyrerun(ranks), Quick(operation, {"--against", "gloo"})), operation, ranks);
      EXPECT_EQ(count["gyre"], FormsOf(operation)) << operation;
      EXPECT_GE(count["gloo"], 2) << operation;
      EXPECT_EQ(count["gloo-bcube"], operation == "allreduce" ? 4 : 0);
    }
  }
}

TEST(BenchProgram, AgainstAllPeersUnderMpirun) {
  if (!Has("mpi")) GTEST_SKIP() << "this build has no Open MPI (no development package, or a sanitizer)";
  const Words launcher = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "2"};
  if (support::Program probe({launcher[0], "--version"});
      !probe.WaitFor(std::chrono::seconds(10)) || probe.exit_code() != 0) {
    GTEST_SKIP() << launcher[0] << " is not installed";
  }
  for (const std::string& operation : kOperations) {
    auto count = CheckedLines(Lines(launcher, Quick(operation, {"--against", PEERS})), operation, 2);
    EXPECT_EQ(count["mpi"], FormsOf(operation)) << operation;
    EXPECT_EQ(count["gloo"] > 0, Has("gloo")) << operation;
  }
}

TEST(BenchProgram, StepAgainstAllPeersUnderMpirun) {
  if (!Has("mpi") || !Has("gloo")) GTEST_SKIP() << "this build lacks a peer (no development package, or a sanitizer)";
  const Words launcher = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "3"};
  if (support::Program probe({launcher[0], "--version"});
      !probe.WaitFor(std::chrono::seconds(10)) || probe.exit_code() != 0) {
    GTEST_SKIP() << launcher[0] << " is not installed";
  }
  const auto lines = Lines(launcher, QuickStep({"--against", "mpi-per-tensor,mpi-bucketed,gloo-bucketed"}));
  EXPECT_THAT(CheckedSteps(lines, 3),
              testing::ElementsAre("gyre arena", "mpi-per-tensor plain", "mpi-bucketed plain", "gloo-bucketed plain"));
  for (const auto& line : lines) EXPECT_TRUE(line["efficiency"].is_null()) << line << ": without compute";
}

// What cannot be measured is refused with a reason, not measured wrongly.
// What that measures is gpu_program_test.cc's.
TEST(BenchProgram, GpuIsAProgramOfItsOwn) {
  support::Program help({GYRE_BENCH_PATH, "gpu", "kernels", "--help"});
  ASSERT_TRUE(help.WaitFor(std::chrono::seconds(60))) << help.output();
  if (std::filesystem::exists(std::filesystem::path(GYRE_BENCH_PATH).parent_path() / "gyre-bench-gpu")) {
    EXPECT_EQ(help.exit_code(), 0) << help.output();
    EXPECT_THAT(help.out(), ::testing::HasSubstr("--only"));
  } else {
    EXPECT_EQ(help.exit_code(), 1) << help.output();
    EXPECT_THAT(help.err(),
                ::testing::ContainsRegex("^gyre-bench: UNIMPLEMENTED: there is no .*gyre-bench-gpu: it is built"));
  }
}

TEST(BenchProgram, Refusals) {
  const struct {
    Words arguments;
    int code;
    std::string reason;
  } cases[] = {
      {{"allreduce", "--against", "mpi"}, 1, "Open MPI"},
      {{"allgather", "--against", "bound"}, 64, "bound"},
      {{"allreduce", "--dtype", "f8"}, 64, "f8"},
      {{"allreduce", "-b", "64", "-e", "8"}, 64, "64 B, is larger than the largest, 8 B; try: -b 8 -e 64"},
      {{"allgather", "-b", "1", "-e", "4", "--dtype", "f64"}, 64, "8 B, is larger"},
      {{"memory", "-e", "1K"}, 64, "65536 B, is larger"},
      {{"price", "-b", "2M", "-e", "1M"}, 64, "is larger"},
      {{"tune", "-b", "2M", "-e", "1M"}, 64, "is larger"},
      {{"allreduce", "-b", "8", "-e", "8", "--json", "/no/such/folder/lines"}, 1, "cannot write /no/such/folder/lines"},
      {{"broadcast", "--root", "1"}, 64, "root 1"},
      {{"allgather", "--op", "max"}, 64, "--op"},
      {{"price", "--ranks", "0"}, 64, "--ranks"},
      {{"step", "--model", "resnet51"}, 64, "resnet51"},
      {{"step", "--against", "mpi-bucketed"}, 1, "Open MPI"},
      {{"step", "--rate", "0"}, 64, "--rate"},
      {{}, 64, "subcommand"},
  };
  for (const auto& each : cases) {
    Words command = {GYRE_BENCH_PATH};
    command.insert(command.end(), each.arguments.begin(), each.arguments.end());
    support::Program program(command);
    ASSERT_TRUE(program.WaitFor(std::chrono::seconds(30)));
    EXPECT_EQ(program.exit_code(), each.code) << program.output();
    EXPECT_TRUE(absl::StrContains(program.err(), each.reason)) << program.output();
  }
}

}  // namespace

}  // namespace gyre::bench
