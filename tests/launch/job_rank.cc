// A rank for job_test and rank_refusal_test: joins the job, meets the others again and again, and says what ended that.
#include <cstdio>
#include <string>

#include "gyre/gyre.h"

int main() {
  auto runtime = gyre::Runtime::Create();
  if (!runtime.ok()) {
    std::fprintf(stderr, "%s\n", std::string(runtime.status().message()).c_str());
    return 2;
  }
  gyre::Communicator& world = (*runtime)->world();
  absl::Status status = world.Barrier();
  if (status.ok()) {
    std::puts("ready");
    std::fflush(stdout);
  }
  while (status.ok()) status = world.Barrier();
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 3;
}
