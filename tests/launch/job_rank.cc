// A rank for job_test, rank_refusal_test and watch_end_to_end_test: joins the job, meets the others again and again,
// and says what ended that. With "report" it goes through a job's phases instead, half a second of work each; with
// "start" and a command it has the shell run that, and then makes a second Runtime.
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

absl::Status StartProgram(const char* command) {
  if (std::system(command) != 0)
    return absl::InternalError("the command failed");  // NOLINT(cert-env33-c): a test's own
  return gyre::Runtime::Create().status();
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
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const absl::Status status = mode == "report"               ? GoThroughPhases(**runtime)
                              : mode == "start" && argc == 3 ? StartProgram(argv[2])
                                                             : MeetAgainAndAgain((*runtime)->world());
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 3;
}
