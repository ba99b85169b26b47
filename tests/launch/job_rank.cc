// A rank for job_test, rank_refusal_test and watch_end_to_end_test: joins the job, meets the others again and again,
// and says what ended that. With "report" it goes through a job's phases instead, half a second of work each.
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "gyre/gyre.h"
#include "gyre/status_macros.h"

namespace {

void Work() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  volatile double sum = 0;
  while (std::chrono::steady_clock::now() < end) sum = sum + 1;
}

absl::Status GoThroughPhases(gyre::Runtime& runtime) {
  RETURN_IF_ERROR(runtime.Report({.phase = gyre::JobPhase::kDownloading, .activity = "loading"}));
  Work();
  RETURN_IF_ERROR(runtime.Report({.phase = gyre::JobPhase::kProcessing, .activity = "training", .steps = 9}));
  Work();
  RETURN_IF_ERROR(runtime.Report({.step = 9, .steps = 9, .loss = 0.5}));
  RETURN_IF_ERROR(runtime.Report({.phase = gyre::JobPhase::kStoring, .activity = "saving"}));
  Work();
  return runtime.world().Barrier();
}

absl::Status MeetAgainAndAgain(gyre::Communicator& world) {
  RETURN_IF_ERROR(world.Barrier());
  std::puts("ready");
  std::fflush(stdout);
  absl::Status status;
  while (status.ok()) status = world.Barrier();
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  auto runtime = gyre::Runtime::Create();
  if (!runtime.ok()) {
    std::fprintf(stderr, "%s\n", std::string(runtime.status().message()).c_str());
    return 2;
  }
  const bool reports = argc > 1 && std::string_view(argv[1]) == "report";
  const absl::Status status = reports ? GoThroughPhases(**runtime) : MeetAgainAndAgain((*runtime)->world());
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 3;
}
