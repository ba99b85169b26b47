#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/fill.h"
#include "support/program.h"
#include "support/ranks.h"
#include "support/signals.h"
#include "support/slower.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre::support {
namespace {

using std::chrono::seconds;

TEST(RunThreads, RunsEveryRankOnceAndJoins) {
  std::atomic<int> sum = 0;
  RunThreads(5, [&](int rank) { sum += 1 << rank; });
  EXPECT_EQ(sum, 31);
}

TEST(RunThreads, AFailureInARankIsTheTests) {
  EXPECT_NONFATAL_FAILURE_ON_ALL_THREADS(RunThreads(2, [](int rank) { EXPECT_NE(rank, 1) << "as it should"; }),
                                         "as it should");
}

TEST(RunProcesses, RanksAreProcessesThatShareAFolderAndAName) {
  const pid_t parent = getppid();
  RunProcesses(3, [&](const Rank& rank) {
    EXPECT_TRUE(InChild());
    EXPECT_EQ(rank.size, 3);
    EXPECT_EQ(getenv("GYRE_TEST_RANK"), nullptr);
    std::ofstream(rank.directory / std::to_string(rank)) << rank.name << " " << getpid();
    while (!std::filesystem::exists(rank.directory / std::to_string((rank + 1) % 3))) std::this_thread::yield();
  });
  EXPECT_FALSE(InChild());
  EXPECT_EQ(getppid(), parent);
}

TEST(RunProcesses, SeveralInOneTestEachRunOnlyTheirOwnBody) {
  for (int call = 0; call < 2; ++call) {
    RunProcesses(2, [&](const Rank& rank) {
      EXPECT_EQ(ThisChild()->call, call);
      for (int other = 0; other < 2; ++other) {  // each group has a folder of its own
        const bool mine = other == call;
        if (mine) std::ofstream(rank.directory / std::to_string(other)) << "x";
        EXPECT_EQ(std::filesystem::exists(rank.directory / std::to_string(other)), mine);
      }
    });
  }
}

TEST(ProcessGroup, TellsAFailureADeathAndASkipApart) {
  ProcessGroup group(4, [](int rank) {
    if (rank == 1) ADD_FAILURE() << "rank 1 fails here";
    if (rank == 2) raise(SIGKILL);
    if (rank == 3) GTEST_SKIP() << "not today";
  });
  group.ExpectExitCode(0, 0);
  group.ExpectExitCode(1, 1);
  group.ExpectExitCode(2, 128 + SIGKILL);
  group.ExpectExitCode(3, kSkippedExitCode);
  EXPECT_THAT(group[1].output(), testing::HasSubstr("rank 1 fails here"));
  EXPECT_NONFATAL_FAILURE(group.ExpectSuccess(1), "rank 1 fails here");
}

TEST(ProcessGroup, ASkipInARankCarriesItsReason) {
  ProcessGroup group(1, [](int) { GTEST_SKIP() << "not on a Tuesday"; });
  testing::TestPartResultArray results;
  {
    testing::ScopedFakeTestPartResultReporter reporter(&results);
    group.ExpectSuccess(0);
  }
  ASSERT_EQ(results.size(), 1);
  EXPECT_TRUE(results.GetTestPartResult(0).skipped());
  EXPECT_THAT(results.GetTestPartResult(0).message(), testing::HasSubstr("rank 0: not on a Tuesday"));
}

TEST(ProcessGroup, AChildThatNeverReachesItsBodyIsAFailure) {
  if (InChild()) return;
  ProcessGroup group(1, [](int) {});
  group.ExpectExitCode(0, kNeverRanExitCode);
  EXPECT_NONFATAL_FAILURE(group.ExpectSuccess(0), "never reached its body");
}

TEST(ProcessGroup, AHangEndsAtTheTimeout) {
  ProcessGroup group(
      1, [](int) { pause(); }, std::chrono::milliseconds(300));
  EXPECT_NONFATAL_FAILURE(group.ExpectSuccess(0), "still ran at the time-out");
}

TEST(ProcessGroup, RanksCanBeWatchedAndSignalled) {
  ProcessGroup group(2, [](int) {
    std::cout << "ready" << std::endl;
    pause();
  });
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(group[rank].WaitForOutput("ready", seconds(30)));
  group[0].Signal(SIGTERM);
  group[1].Signal(SIGKILL);
  group.ExpectExitCode(0, 128 + SIGTERM);
  group.ExpectExitCode(1, 128 + SIGKILL);
}

TEST(Program, ReadsOutputsExitCodeInputAndEnvironment) {
  TemporaryDirectory directory;
  std::ofstream(directory.path() / "input") << "from the file";
  ProgramOptions options;
  options.environment = {{"GYRE_X", "1"}, {"HOME", std::nullopt}};
  options.directory = directory.path();
  options.input = directory.path() / "input";
  Program program({"sh", "-c", "cat; echo $GYRE_X-${HOME-none}; pwd; echo bad >&2; exit 7"}, options);
  ASSERT_TRUE(program.WaitFor(seconds(30)));
  EXPECT_EQ(program.exit_code(), 7);
  EXPECT_EQ(program.out(), "from the file1-none\n" + directory.path().string() + "\n");
  EXPECT_EQ(program.err(), "bad\n");
}

TEST(Program, ThatIsNotThereEndsWith127) {
  Program program({"/nowhere/at/all"});
  ASSERT_TRUE(program.WaitFor(seconds(30)));
  EXPECT_EQ(program.exit_code(), 127);
  EXPECT_EQ(program.err(), "cannot start /nowhere/at/all: No such file or directory\n");
}

TEST(Program, IsGoneWithItsObject) {
  pid_t pid = 0;
  {
    Program program({"sleep", "1000"});
    pid = program.pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_NE(kill(pid, 0), 0);
}

// Signal 0 does nothing, wherever it goes.
TEST(SendSignal, GoesToOneProcess) {
  for (const pid_t nobody : {-1, 0, -getpid()}) EXPECT_FALSE(SendSignal(nobody, 0)) << nobody;
  EXPECT_TRUE(SendSignal(getpid(), 0));
}

TEST(Fill, DiffersByRankSeedAndIndexAndRepeats) {
  std::set<std::vector<float>> seen;
  for (int rank = 0; rank < 4; ++rank) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      std::vector<float> values(8);
      FillUniform(values, seed, rank);
      EXPECT_TRUE(seen.insert(values).second);
      std::vector<float> again(8);
      FillUniform(again, seed, rank);
      EXPECT_EQ(values, again);
      for (float value : values) EXPECT_TRUE(value >= -1 && value < 1) << value;
    }
  }
}

TEST(Fill, ExactValuesSurviveEveryType) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<std::byte> bytes(1 + 64 * 8);
    const TensorView view(bytes.data() + 1, 64, dtype);  // not aligned
    FillExact(view, 5, 2);
    for (int64_t index = 0; index < 64; ++index) {
      EXPECT_EQ(ReadElement(view, index), ExactValue(dtype, 5, 2, index)) << DTypeName(dtype);
    }
  }
}

TEST(Matchers, LookAtCodeAndMessage) {
  const absl::Status lost = absl::AbortedError("rank 2 was lost");
  const absl::StatusOr<int> number = 3;
  EXPECT_THAT(lost, MatchesStatus(absl::StatusCode::kAborted, "rank 2"));
  EXPECT_THAT(lost, testing::Not(MatchesStatus(absl::StatusCode::kAborted, "rank 3")));
  EXPECT_THAT(lost, testing::Not(MatchesStatus(absl::StatusCode::kUnavailable, "")));
  EXPECT_THAT(number, IsOk());
  EXPECT_THAT(absl::StatusOr<int>(lost), testing::Not(IsOk()));
}

TEST(Slower, MultipliesByAWholeNumberOfTheEnvironment) {
  const auto of = [](const char* text) {
    setenv("GYRE_TEST_SLOWER", text, 1);
    const auto time = Slower(seconds(3));
    unsetenv("GYRE_TEST_SLOWER");
    return time;
  };
  EXPECT_EQ(of("10"), seconds(30));
  for (const char* not_taken : {"1", "0", "-2", "1001", "1.5", "", "x"})
    EXPECT_EQ(of(not_taken), seconds(3)) << not_taken;
}

TEST(Slower, RanksGetTheTimeOutThatItMakes) {
  setenv("GYRE_TEST_SLOWER", "100", 1);
  RunProcesses(
      1, [](const Rank&) { std::this_thread::sleep_for(seconds(1)); }, std::chrono::milliseconds(300));
  unsetenv("GYRE_TEST_SLOWER");
}

TEST(Temporary, FoldersGoAndNamesDiffer) {
  std::filesystem::path path;
  {
    TemporaryDirectory directory;
    path = directory.path();
    std::ofstream(path / "file") << "x";
    EXPECT_TRUE(std::filesystem::exists(path / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_NE(UniqueName("a"), UniqueName("a"));
}

}  // namespace
}  // namespace gyre::support
