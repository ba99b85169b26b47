// A small rank for the tests that use real launchers: joins, gathers, and says what it found. With "--mpi before" or
// "--mpi after" it also initialises MPI, around the joining. "--rounds N": joins N times, one after the other
// (none: only MPI is probed).
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/environment.h"
#include "base/status.h"
#include "bootstrap/membership.h"
#include "probe_mpi.h"

namespace {

// In one write: launchers pass on what they read, and MPI may have left stdout without a buffer.
void Print(const std::string& line) {
  const std::string bytes = line + "\n";
  if (write(STDOUT_FILENO, bytes.data(), bytes.size()) < 0) std::perror("write");
}

absl::Status JoinAndGather(int round) {
  const gyre::TimePoint deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const gyre::Environment environment = gyre::ProcessEnvironment();
  ASSIGN_OR_RETURN(const gyre::Config config, gyre::LoadConfig({}, environment));
  ASSIGN_OR_RETURN(auto membership, gyre::Membership::Join(config, environment, deadline));
  ASSIGN_OR_RETURN(const auto values,
                   membership->Gather("probe", absl::StrCat("v", membership->rank() + 100 * round), deadline));
  std::string line =
      absl::StrCat("rank ", membership->rank(), " of ", membership->size(), " by ", membership->launcher(), ":");
  for (const std::string& value : values) absl::StrAppend(&line, " ", value);
  Print(line);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::string mpi = "none";
  int rounds = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--mpi") mpi = argv[i + 1];
    if (std::string(argv[i]) == "--rounds") rounds = std::stoi(argv[i + 1]);
  }
  if (mpi == "before") ProbeMpiInit();
  for (int round = 0; round < rounds; ++round) {
    const absl::Status status = JoinAndGather(round);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  if (mpi == "after") ProbeMpiInit();
  if (mpi != "none") Print(absl::StrCat("mpi size ", ProbeMpiFinish()));
  return 0;
}
