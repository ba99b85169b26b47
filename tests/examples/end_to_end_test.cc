// The built examples under the built gyrerun, as a user starts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "examples/char_lm_fixture.h"
#include "support/program.h"

namespace gyre {
namespace {

using support::Program;
using testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(120);

struct Ending {
  int exit_code = -1;
  std::string out, err;

  nlohmann::json Json() const { return LastLine(out); }
};

class CharLm : public CharLmTest {
 protected:
  std::string Path(const std::string& name) const { return folder_.path() / name; }

  // Arguments of `gyrerun -np ranks char_lm`, on the test's text.
  std::vector<std::string> Command(int ranks, const std::vector<std::string>& options) const {
    std::vector<std::string> command = {
        GYRERUN_PATH, "-np",    std::to_string(ranks),  CHAR_LM_PATH, "--text", text_, "--batch",
        "300",        "--json", "--portable-arithmetic"};
    command.insert(command.end(), options.begin(), options.end());
    return command;
  }

  Ending RunToEnd(const std::vector<std::string>& command) const {
    Program program(command);
    EXPECT_TRUE(program.WaitFor(kLimit)) << program.output();
    return {program.exit_code().value_or(-1), program.out(), program.err()};
  }

  Ending Train(int ranks, const std::vector<std::string>& options) const { return RunToEnd(Command(ranks, options)); }

  // The losses of a --loss-file, which must be of steps 1, 2, ...
  static std::vector<double> Losses(const std::string& path) {
    std::ifstream file(path);
    std::vector<double> losses;
    int64_t step;
    char comma;
    double loss;
    while (file >> step >> comma >> loss) {
      losses.push_back(loss);
      EXPECT_EQ(step, std::ssize(losses));
    }
    return losses;
  }
};

TEST_F(CharLm, AnyNumberOfRanksTrainsTheSameModel) {
  std::map<int, std::vector<double>> losses;
  std::map<int, double> bits;
  std::map<int, std::string> hashes;
  for (int ranks : {1, 2, 4}) {  // three slices of samples, the last one shorter
    const std::string file = Path("losses" + std::to_string(ranks));
    const Ending run = Train(ranks, {"--steps", "60", "--loss-file", file});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const auto json = run.Json();
    ASSERT_TRUE(json.is_object()) << run.out;
    EXPECT_EQ(json["ranks"], ranks);
    EXPECT_EQ(json["steps"], 60);
    EXPECT_EQ(json["replicas_identical"], true);
    hashes[ranks] = json["params_hash"];
    EXPECT_EQ(hashes[ranks].size(), 16u);
    EXPECT_GT(json["chars_per_s"], 0);
    EXPECT_NEAR(json["chars_per_s"].get<double>(), 300 * json["steps_per_s"].get<double>(),
                1e-6 * json["chars_per_s"].get<double>());
    EXPECT_GE(json["comm_fraction"], 0);
    EXPECT_LT(json["comm_fraction"], 1);
    bits[ranks] = json["heldout_bits_per_char"];
    losses[ranks] = Losses(file);
    ASSERT_EQ(losses[ranks].size(), 60u);
  }
  EXPECT_LT(losses[1].back(), 0.7 * losses[1].front());
  for (int ranks : {2, 4}) {
    EXPECT_EQ(losses[ranks], losses[1]) << ranks << " ranks";  // to the bit
    EXPECT_EQ(hashes[ranks], hashes[1]) << ranks << " ranks";
    EXPECT_NEAR(bits[ranks], bits[1], 1e-6);
  }
}

TEST_F(CharLm, LargeBatchesAreTheSameOnAnyNumberOfRanks) {  // their slices are larger
  std::map<int, std::vector<double>> losses;
  for (int ranks : {1, 3}) {
    const std::string file = Path("losses" + std::to_string(ranks));
    const Ending run = RunToEnd({GYRERUN_PATH, "-np", std::to_string(ranks), CHAR_LM_PATH, "--text", text_, "--batch",
                                 "20000", "--steps", "4", "--portable-arithmetic", "--loss-file", file});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    losses[ranks] = Losses(file);
  }
  EXPECT_EQ(losses[1].size(), 4u);
  EXPECT_LT(losses[1].back(), losses[1].front());
  EXPECT_EQ(losses[3], losses[1]);
}

// Of every kind: a few steps, after which all ranks have the same weights, which are better ones.
TEST_F(CharLm, LearnsWithEveryCompression) {
  for (const std::string codec :
       {"none", "fp16", "bf16", "fp8", "fp8-e5m2", "int8", "int4", "sign", "ternary", "topk:0.9", "topk-sampled:0.9",
        "randomk:0.9", "powersgd:2", "dgc:0.9", "dgc-global:0.9"}) {
    const std::string file = Path("losses-" + codec);
    std::vector<std::string> options = {"--steps", "20", "--compression", codec, "--loss-file", file};
    if (codec.starts_with("dgc")) options.insert(options.end(), {"--momentum", "--lr", "0.1"});
    const Ending run = Train(2, options);
    ASSERT_EQ(run.exit_code, 0) << codec << ": " << run.err;
    EXPECT_EQ(run.Json()["replicas_identical"], true) << codec;
    const std::vector<double> losses = Losses(file);
    ASSERT_EQ(losses.size(), 20u) << codec;
    EXPECT_LT(losses.back(), 0.97 * losses.front()) << codec;
  }
  const Ending refused = Train(1, {"--steps", "1", "--compression", "dgc"});  // with Adam
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("Adam"));
}

// Both are worse than what they leave out, the one because it forgets, the other because it goes too far.
TEST_F(CharLm, ExperimentsDoWrongOnPurpose) {
  const std::vector<std::string> sparse = {"--steps", "60", "--momentum", "--lr", "0.1", "--sparsity", "0.99"};
  const auto losses = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> options = sparse;
    options.insert(options.end(), {"--loss-file", Path(name)});
    options.insert(options.end(), more.begin(), more.end());
    const Ending run = Train(2, options);
    EXPECT_EQ(run.exit_code, 0) << name << ": " << run.err;
    EXPECT_EQ(run.Json()["replicas_identical"], true) << name;
    return Losses(Path(name));
  };
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  const auto top_k = losses("topk", {"--compression", "topk"});
  const auto forgetful = losses("forgetful", {"--compression", "topk", "--experiment", "no-residual"});
  EXPECT_EQ(forgetful[0], top_k[0]);  // with nothing to forget as yet; and so is the second
  EXPECT_EQ(forgetful[1], top_k[1]);
  EXPECT_GT(mean(forgetful), mean(top_k) + 0.05);
  const auto dgc = losses("dgc", {"--compression", "dgc"});
  const auto twice = losses("twice", {"--compression", "dgc", "--experiment", "double-momentum"});
  EXPECT_EQ(twice[1], dgc[1]);  // one update has no momentum yet
  EXPECT_GT(mean(twice), mean(dgc) + 0.05);
  EXPECT_EQ(Train(1, {"--experiment", "no-residual"}).exit_code, 64);  // of which compression?
  EXPECT_EQ(Train(1, {"--compression", "topk", "--experiment", "none"}).exit_code, 64);
}

TEST_F(CharLm, FewerCharactersThanRanks) {
  const Ending run = RunToEnd(
      {GYRERUN_PATH, "-np", "3", CHAR_LM_PATH, "--text", text_, "--steps", "3", "--batch", "2", "--quiet", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1) << run.out;
  EXPECT_EQ(run.Json()["replicas_identical"], true);
}

TEST_F(CharLm, ResumedIsToTheBitAsNeverStopped) {
  const std::string state = Path("state"), whole = Path("whole"), halves = Path("halves");
  const Ending straight = Train(2, {"--steps", "40", "--loss-file", whole});
  ASSERT_EQ(straight.exit_code, 0) << straight.err;
  ASSERT_EQ(Train(2, {"--steps", "17", "--loss-file", halves, "--checkpoint", state}).exit_code, 0);
  const Ending resumed = Train(2, {"--steps", "40", "--loss-file", halves, "--checkpoint", state, "--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.Json()["params_hash"], straight.Json()["params_hash"]);
  EXPECT_EQ(resumed.Json()["heldout_bits_per_char"], straight.Json()["heldout_bits_per_char"]);
  EXPECT_EQ(Losses(halves), Losses(whole));
}

// By the program's option and by the variable: what each rank's codecs keep goes on.
TEST_F(CharLm, ResumedCompressedTrainingIsToTheBitAsNeverStopped) {
  for (const std::string codec :
       {"fp16", "bf16", "fp8", "fp8-e5m2", "int8", "int4", "sign", "ternary", "topk:0.9", "topk-sampled:0.9",
        "topk-global:0.9", "randomk:0.9", "powersgd:2", "dgc:0.9", "dgc-global:0.9"}) {
    const std::string state = Path("state-" + codec), whole = Path("whole-" + codec), halves = Path("halves-" + codec);
    const auto train = [&](std::vector<std::string> options) {
      const bool dgc = codec.starts_with("dgc");
      options.insert(options.end(), {"--steps", "24", "--compression", codec, "--lr", dgc ? "0.1" : "0.006"});
      if (dgc) options.emplace_back("--momentum");
      const Ending run = Train(2, options);
      EXPECT_EQ(run.exit_code, 0) << codec << ": " << run.err;
      return run.Json()["params_hash"];
    };
    const auto straight = train({"--loss-file", whole});
    train({"--loss-file", halves, "--checkpoint", state, "--stop-at", "12"});
    EXPECT_EQ(Losses(halves).size(), 12u) << codec;
    EXPECT_EQ(train({"--loss-file", halves, "--checkpoint", state, "--resume"}), straight) << codec;
    EXPECT_EQ(Losses(halves), Losses(whole)) << codec;
  }
  const auto by_variable = [&](std::vector<std::string> options) {
    std::vector<std::string> command = Command(3, options);
    command.insert(command.begin(), {"env", "GYRE_COMPRESSION=topk:0.9:always"});
    const Ending run = RunToEnd(command);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.Json()["params_hash"];
  };
  const std::string state = Path("state");
  by_variable({"--steps", "30", "--checkpoint", state});
  EXPECT_EQ(by_variable({"--steps", "60", "--checkpoint", state, "--resume"}), by_variable({"--steps", "60"}));
}

TEST_F(CharLm, WhatDiffersAtResumeIsSaid) {
  const std::string state = Path("state");
  const std::vector<std::string> first = {"--steps", "4", "--checkpoint", state, "--momentum", "--lr", "0.1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), first.begin(), first.end());
    return more;
  };
  ASSERT_EQ(Train(2, with({"--compression", "topk:0.9", "--stop-at", "2"})).exit_code, 0);
  const auto refused = [&](int ranks, const std::vector<std::string>& options, const std::string& why) {
    std::vector<std::string> all = options;
    all.emplace_back("--resume");
    const Ending run = Train(ranks, all);
    EXPECT_EQ(run.exit_code, 1) << why;
    EXPECT_THAT(run.err, HasSubstr("the checkpoint is of another training: it has " + why)) << why;
  };
  refused(2, with({"--compression", "topk:0.99"}), "compression topk of sparsity 0.9 and not topk of sparsity 0.99");
  refused(2, with({}), "compression topk of sparsity 0.9 and not none, ranks 2 and not any");
  refused(3, with({"--compression", "topk:0.9"}), "ranks 2 and not 3");
  refused(2, {"--steps", "9", "--checkpoint", state, "--momentum", "--lr", "0.2", "--compression", "topk:0.9"},
          "learning rate 0.1 and not 0.2, steps 4 and not 9");
  refused(2, with({"--compression", "topk:0.9", "--preset", "medium"}), "context 8 and not 12, hidden 288 and not 512");
  EXPECT_EQ(Train(2, with({"--compression", "topk:0.9", "--resume"})).exit_code, 0);
}

// BLAS and the C library choose code by the processor; here as for one that has neither AVX nor fused multiply-adds.
TEST_F(CharLm, PortableArithmeticIsThatOfAllProcessors) {
  const auto train = [&](const std::vector<std::string>& processor, const std::vector<std::string>& options) {
    std::vector<std::string> command = Command(2, options);
    command.insert(command.begin(), processor.begin(), processor.end());
    const Ending run = RunToEnd(command);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    nlohmann::json json = run.Json();
    return json["params_hash"].dump() + " " + json["heldout_bits_per_char"].dump();
  };
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--steps", "40"}, {"--steps", "40", "--momentum"}}) {
    const std::string here = train({}, options);
    for (const std::string kernel : {"Nehalem", "Prescott"}) {
      EXPECT_EQ(train({"env", "OPENBLAS_CORETYPE=" + kernel,
                       "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-FMA,-FMA4"},
                      options),
                here)
          << kernel;
    }
  }
}

TEST_F(CharLm, ResumedAfterACrashTheLossFileHasEachStepOnce) {
  const std::string state = Path("state"), whole = Path("whole"), losses = Path("losses");
  ASSERT_EQ(Train(2, {"--steps", "20", "--loss-file", whole}).exit_code, 0);
  ASSERT_EQ(Train(2, {"--steps", "8", "--checkpoint", state}).exit_code, 0);
  std::filesystem::copy_file(whole, losses);
  std::filesystem::resize_file(losses, std::filesystem::file_size(losses) - 3);  // it crashed while it wrote
  const Ending resumed = Train(2, {"--steps", "20", "--checkpoint", state, "--resume", "--loss-file", losses});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(Losses(losses), Losses(whole));
}

TEST_F(CharLm, NothingIsTrainedForACheckpointThatCannotBeWritten) {
  const Ending run = Train(2, {"--steps", "1000000", "--checkpoint", Path("none/state")});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("char_lm: rank 0: NOT_FOUND: cannot create " + Path("none/state")));
  EXPECT_EQ(run.out.find("step 1/"), std::string::npos) << run.out;
}

TEST_F(CharLm, ACheckpointBeyondTheLastStepIsRefused) {
  const std::string state = Path("state");
  ASSERT_EQ(Train(2, {"--steps", "6", "--checkpoint", state}).exit_code, 0);
  const Ending fewer = Train(2, {"--steps", "5", "--checkpoint", state, "--resume"});
  EXPECT_EQ(fewer.exit_code, 1);
  EXPECT_THAT(fewer.err, HasSubstr("char_lm: rank 0: FAILED_PRECONDITION: the checkpoint has been trained for 6 steps "
                                   "already, more than --steps 5"));
}

TEST_F(CharLm, ACheckpointOfAnotherTrainingIsRefusedOnAllRanks) {
  const std::string state = Path("state");
  ASSERT_EQ(Train(2, {"--steps", "2", "--checkpoint", state}).exit_code, 0);
  const Ending other = Train(2, {"--steps", "4", "--checkpoint", state, "--resume", "--seed", "5"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err,
              HasSubstr("char_lm: rank 0: FAILED_PRECONDITION: the checkpoint is of another training: it has "
                        "seed 1 and not 5"));
  std::filesystem::resize_file(state, 1000);
  const Ending damaged = Train(2, {"--steps", "4", "--checkpoint", state, "--resume"});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.err, HasSubstr("char_lm: rank 0: DATA_LOSS: " + state));
}

TEST_F(CharLm, SignalsStopAllRanksBetweenStepsWithACheckpoint) {
  const std::string state = Path("state"), losses = Path("losses");
  for (const auto& [number, name] : std::map<int, std::string>{{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}}) {
    std::filesystem::remove(state);
    Program program({CHAR_LM_PATH, "--text", text_, "--batch", "64", "--steps", "1000000", "--checkpoint", state});
    ASSERT_TRUE(program.WaitForOutput("step 1/", kLimit)) << program.output();
    program.Signal(number);
    ASSERT_TRUE(program.WaitFor(kLimit));
    EXPECT_EQ(program.exit_code(), number == SIGTERM ? 75 : 128 + number) << program.err();
    EXPECT_THAT(program.out(), HasSubstr("stopped by " + name));
    EXPECT_TRUE(std::filesystem::exists(state));
  }
  // All ranks: gyrerun passes SIGTERM on. The loss file has as many steps as the checkpoint.
  std::filesystem::remove(state);
  Program job(Command(3, {"--steps", "1000000", "--checkpoint", state, "--loss-file", losses}));
  ASSERT_TRUE(job.WaitForOutput("step 1/", kLimit)) << job.output();
  job.Signal(SIGTERM);
  ASSERT_TRUE(job.WaitFor(kLimit));
  EXPECT_THAT(job.out(), HasSubstr("stopped by SIGTERM"));
  EXPECT_EQ(job.exit_code(), 75) << job.err();
  const std::string steps = std::to_string(Losses(losses).size());
  const Ending resumed = Train(3, {"--steps", steps, "--checkpoint", state, "--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.Json()["steps_per_s"], 0) << "the checkpoint is not of step " << steps;
}

// Killed three times, it is started again from its checkpoint, and the model is the same to the bit.
TEST_F(CharLm, RestartsEndWithTheSameModel) {
  const std::vector<std::string> options = {"--steps", "300", "--quiet"};
  const Ending whole = Train(2, options);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  // Rank 1 is killed once the checkpoint that it finds at its start has been replaced.
  const std::string script = R"(
state=$1; shift
before=$(stat -c %i "$state" 2>&-)
test "$before" && set -- "$@" --resume
test $GYRE_RANK = 1 && test $GYRE_EPOCH -lt 3 || exec "$@"
"$@" & trainer=$!
while now=$(stat -c %i "$state" 2>&-); test -z "$now" || test "$now" = "$before"; do sleep 0.01; done
kill -9 $trainer; wait $trainer)";
  const std::string state = Path("state");
  std::vector<std::string> command = Command(2, options);
  const std::vector<std::string> restarting = {
      "--max-restarts", "3", "--restart-delay", "0.05", "--settle", "0", "sh", "-c", script, "sh", state};
  command.insert(command.begin() + 3, restarting.begin(), restarting.end());
  command.insert(command.end(), {"--checkpoint", state, "--checkpoint-every", "10"});
  const Ending run = RunToEnd(command);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.err, HasSubstr("restart 3 of 3"));
  EXPECT_EQ(run.Json()["params_hash"], whole.Json()["params_hash"]) << run.out;
}

TEST_F(CharLm, AnIgnoredSignalStaysIgnored) {
  Program program({"sh", "-c", "trap '' INT; exec \"$@\"", "sh", CHAR_LM_PATH, "--text", text_, "--batch", "64",
                   "--steps", "1000000"});
  ASSERT_TRUE(program.WaitForOutput("step 1/", kLimit)) << program.output();
  program.Signal(SIGINT);
  program.Signal(SIGINT);
  EXPECT_FALSE(program.WaitFor(std::chrono::milliseconds(500))) << program.output();
  program.Signal(SIGTERM);
  ASSERT_TRUE(program.WaitFor(kLimit));
  EXPECT_EQ(program.exit_code(), 128 + SIGTERM) << program.output();
}

TEST_F(CharLm, ALostRankEndsTheOthersWithItsName) {
  Program job(Command(2, {"--steps", "1000000"}));
  ASSERT_TRUE(job.WaitForOutput("step 1/", kLimit)) << job.output();
  // Of the two ranks the one that was started last is rank 1 or 0: whichever it is, the other must name it.
  std::vector<int> ranks;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream command(entry.path() / "cmdline"), environment(entry.path() / "environ");
    const std::string arguments{std::istreambuf_iterator<char>(command), {}};
    const std::string variables{std::istreambuf_iterator<char>(environment), {}};
    if (arguments.starts_with(CHAR_LM_PATH) && arguments.find(text_) != std::string::npos &&
        variables.find(std::string("\0GYRE_RANK=1\0", 13)) != std::string::npos) {
      ranks.push_back(std::stoi(entry.path().filename()));
    }
  }
  ASSERT_EQ(ranks.size(), 1u);
  kill(ranks[0], SIGKILL);
  ASSERT_TRUE(job.WaitFor(kLimit));
  EXPECT_EQ(job.exit_code(), 137) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("char_lm: rank 0: ABORTED: "));
  EXPECT_THAT(job.err(), HasSubstr("rank 1"));
}

TEST_F(CharLm, WrongUsage) {
  const Ending unknown = RunToEnd({CHAR_LM_PATH, "--frobnicate"});
  EXPECT_EQ(unknown.exit_code, 64);
  EXPECT_THAT(unknown.err, HasSubstr("--frobnicate"));
  EXPECT_EQ(RunToEnd({CHAR_LM_PATH, "--batch", "0"}).exit_code, 64);
  EXPECT_EQ(RunToEnd({CHAR_LM_PATH, "--resume"}).exit_code, 64);  // of which checkpoint?
  EXPECT_EQ(RunToEnd({CHAR_LM_PATH, "--help"}).exit_code, 0);
  const Ending missing = RunToEnd({CHAR_LM_PATH, "--text", Path("none")});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("char_lm: rank 0: NOT_FOUND: "));
  std::ofstream(Path("tiny")) << "tiny";
  const Ending tiny = RunToEnd({CHAR_LM_PATH, "--text", Path("tiny")});
  EXPECT_EQ(tiny.exit_code, 1);
  EXPECT_THAT(tiny.err, HasSubstr("char_lm: rank 0: INVALID_ARGUMENT: the text has 4 characters"));
}

TEST_F(CharLm, RanksWithOtherOptionsAreNamed) {
  const std::string script = std::string("exec ") + CHAR_LM_PATH + " --text " + text_ + " --steps 3 --seed $GYRE_RANK";
  const Ending run = RunToEnd({GYRERUN_PATH, "-np", "2", "sh", "-c", script});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("INVALID_ARGUMENT: rank 1 has another text or other options than rank 0"));
}

TEST(HelloAllreduce, SaysTheSum) {
  Program program({GYRERUN_PATH, "-np", "3", HELLO_ALLREDUCE_PATH});
  ASSERT_TRUE(program.WaitFor(kLimit));
  EXPECT_EQ(program.exit_code(), 0) << program.err();
  for (const char* rank : {"rank 0 of 3", "rank 1 of 3", "rank 2 of 3"}) {
    EXPECT_THAT(program.out(), HasSubstr(std::string(rank) + ": the sum of 1 to 3 is 6"));
  }
}

}  // namespace
}  // namespace gyre
