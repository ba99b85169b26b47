// Real launchers start membership_probe; each is skipped where it is not installed.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "support/program.h"
#include "support/status_matchers.h"
#include "support/temporary.h"

namespace gyre {
namespace {

// The probe whose name ends like this, if this build has it.
std::optional<std::string> Probe(const std::string& suffix) {
  const std::string name = absl::StrCat("/membership_probe", suffix);
  for (std::string path : std::vector<std::string>(absl::StrSplit(PROBES, ':'))) {
    if (path.ends_with(name)) return path;
  }
  return std::nullopt;
}

bool Installed(const std::string& program) {
  support::Program which({"sh", "-c", absl::StrCat("command -v ", program)});
  return which.WaitFor(std::chrono::seconds(10)) && which.exit_code() == 0;
}

struct Case {
  std::string name;
  std::vector<std::string> launcher;
  std::string suffix;  // of the probe: which MPI it holds
  std::vector<std::string> arguments;
  std::string expected_name;
};

void PrintTo(const Case& launch, std::ostream* stream) {
  *stream << launch.name;
}

const std::vector<std::string> kOpenMpi = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"};
const std::vector<std::string> kMpich = {"mpirun.mpich"};

// The launcher's two ranks, which run the probe with these arguments.
std::vector<std::string> Command(const Case& launch, const std::string& probe,
                                 const std::vector<std::string>& arguments) {
  std::vector<std::string> command = launch.launcher;
  command.insert(command.end(), {"-np", "2", probe});
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// Whether the launcher and the MPI beside it do not know each other, so that each rank takes itself for a job of one:
// so it is with Ubuntu 24.04's MPICH 4.2.0 (Launchpad bug 2072338). The probe joins nothing here: it is MPI alone.
bool EachRankIsAlone(const Case& launch, const std::string& probe) {
  support::Program program(Command(launch, probe, {"--mpi", "before", "--rounds", "0"}));
  return program.WaitFor(std::chrono::seconds(60)) && program.out().find("mpi size 1\n") != std::string::npos;
}

class Launchers : public testing::TestWithParam<Case> {};

TEST_P(Launchers, RanksMeet) {
  const Case& launch = GetParam();
  if (!Installed(launch.launcher[0])) GTEST_SKIP() << launch.launcher[0] << " is not installed";
  const auto probe = Probe(launch.suffix);
  if (!probe) GTEST_SKIP() << "this build has no rank with this MPI (no development package, or a sanitizer)";
  if (!launch.suffix.empty() && EachRankIsAlone(launch, *probe)) {
    GTEST_SKIP() << "this machine's MPI is broken: without Gyre, too, each rank that " << launch.launcher[0]
                 << " starts has an MPI size of 1";
  }
  const support::TemporaryDirectory directory;
  support::Program program(Command(launch, *probe, launch.arguments),
                           {.environment = {{"XDG_RUNTIME_DIR", directory.path().string()}}, .directory = {}});
  ASSERT_TRUE(program.WaitFor(std::chrono::seconds(60))) << program.output();
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  for (int rank = 0; rank < 2; ++rank) {
    const std::string line = absl::StrCat("rank ", rank, " of 2 by ", launch.expected_name, ": v0 v1\n");
    EXPECT_NE(program.out().find(line), std::string::npos) << line << program.output();
    if (!launch.suffix.empty() && !launch.arguments.empty()) {
      EXPECT_NE(program.out().find("mpi size 2\n"), std::string::npos) << program.output();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mpi, Launchers,
    testing::Values(Case{"OpenMpi", kOpenMpi, "", {}, "openmpi"},
                    Case{"OpenMpiJoiningThreeTimes", kOpenMpi, "", {"--rounds", "3"}, "openmpi"},
                    Case{"OpenMpiAfterMpiInit", kOpenMpi, "_openmpi", {"--mpi", "before"}, "openmpi"},
                    Case{"OpenMpiBeforeMpiInit", kOpenMpi, "_openmpi", {"--mpi", "after"}, "openmpi"},
                    Case{"Mpich", kMpich, "", {}, "mpich"},
                    Case{"MpichJoiningThreeTimes", kMpich, "", {"--rounds", "3"}, "mpich"},
                    Case{"MpichAfterMpiInit", kMpich, "_mpich", {"--mpi", "before"}, "mpich"},
                    Case{"MpichBeforeMpiInit", kMpich, "_mpich", {"--mpi", "after"}, "mpich"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gyre
