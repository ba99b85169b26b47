// A small rank for the tests that use real launchers: joins, gathers, and says what it found. With "--mpi before" or
// "--mpi after" it also initialises MPI, around the joining. "--rounds N": joins N times, one after the other.
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
  std::printf("%s\n", line.c_str());
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
  if (mpi != "none") std::printf("mpi size %d\n", ProbeMpiFinish());
  return 0;
}
