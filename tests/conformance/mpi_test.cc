// GYRE_BACKEND=mpi over real processes of mpirun: the collectives' conformance suite, and how calls end that cannot end
// well.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/program.h"

namespace gyre {
namespace {

using testing::HasSubstr;

support::ProgramOptions ByMpi() {
  support::ProgramOptions options;
  options.environment = {
      {"GYRE_BACKEND", "mpi"}, {"LD_LIBRARY_PATH", MODULE_PATH}, {"OMPI_MCA_mpi_yield_when_idle", "1"}};
  return options;
}

std::vector<std::string> Mpirun(int ranks, const std::vector<std::string>& program) {
  std::vector<std::string> command = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np",
                                      absl::StrCat(ranks)};
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

class MpiBackend : public testing::Test {
 protected:
  void SetUp() override {
    support::Program probe({"mpirun.openmpi", "--version"});
    if (!probe.WaitFor(std::chrono::seconds(10)) || probe.exit_code() != 0) {
      GTEST_SKIP() << "mpirun.openmpi is not installed";
    }
  }

  // What each rank says, and mpirun's exit code.
  static std::string Output(int ranks, const std::string& mode, int* code = nullptr) {
    support::Program program(Mpirun(ranks, {MPI_JOB_PATH, mode}), ByMpi());
    EXPECT_TRUE(program.WaitFor(std::chrono::seconds(60))) << program.output();
    if (code != nullptr) *code = program.exit_code().value_or(-1);
    return program.out();
  }
};

TEST_F(MpiBackend, PassesTheConformanceSuite) {
  for (const int ranks : {2, 3}) {
    support::Program program(Mpirun(ranks, {SUITE_PATH}), ByMpi());
    ASSERT_TRUE(program.WaitFor(std::chrono::seconds(100))) << program.output();
    EXPECT_EQ(program.exit_code(), 0) << program.output();
    EXPECT_THAT(program.out(), HasSubstr("[  PASSED  ]"));
  }
}

TEST_F(MpiBackend, ADeadlineMakesTheCommunicatorUnusable) {
  const std::string out = Output(3, "deadline");
  EXPECT_THAT(out, HasSubstr("rank 0 alone: DEADLINE_EXCEEDED: allreduce(f32, 1000 elements, sum) by MPI timed out"));
  EXPECT_THAT(out, HasSubstr("rank 0 again: FAILED_PRECONDITION: the communicator is unusable"));
  for (const int rank : {1, 2}) EXPECT_THAT(out, HasSubstr(absl::StrCat("rank ", rank, " late: ")));
  EXPECT_THAT(out, testing::Not(HasSubstr("OK")));
}

TEST_F(MpiBackend, AllRanksLearnOfWrongArguments) {
  const std::string out = Output(3, "refused");
  for (const int rank : {0, 1, 2})
    EXPECT_THAT(out, HasSubstr(absl::StrCat("rank ", rank, " refused: INVALID_ARGUMENT")));
  EXPECT_THAT(out, HasSubstr("output has 9 elements; 10 expected"));
}

TEST_F(MpiBackend, TensorsOnGpusAreGyresOwn) {
  int code = -1;
  const std::string out = Output(3, "gpu", &code);
  EXPECT_EQ(code, 0) << out;
  for (const int rank : {0, 1, 2}) EXPECT_THAT(out, HasSubstr(absl::StrCat("rank ", rank, " on a GPU: 3 6 6 30\n")));
}

TEST_F(MpiBackend, SplitsAreGyresOwn) {
  int code = -1;
  const std::string out = Output(4, "split", &code);
  EXPECT_EQ(code, 0);
  for (const int rank : {0, 2}) EXPECT_THAT(out, HasSubstr(absl::StrCat("rank ", rank, " of 4 split: 2")));
  for (const int rank : {1, 3}) EXPECT_THAT(out, HasSubstr(absl::StrCat("rank ", rank, " of 4 split: 4")));
}

TEST_F(MpiBackend, RanksOfAnotherLauncherAreRefused) {
  support::Program program({GYRERUN_PATH, "-np", "2", MPI_JOB_PATH, "split"}, ByMpi());
  ASSERT_TRUE(program.WaitFor(std::chrono::seconds(60)));
  EXPECT_NE(program.exit_code(), 0);
  EXPECT_THAT(program.output(), HasSubstr("start the job by mpirun"));
}

}  // namespace
}  // namespace gyre
