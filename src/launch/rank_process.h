// Starting one rank.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace gyre::launch {

struct RankCommand {
  int rank = 0;
  std::string path;                      // what to execute
  std::vector<std::string> arguments;    // argv, the program's name first
  std::vector<std::string> environment;  // "VAR=VALUE"
  int stdin_fd = -1;                     // becomes the rank's standard input
  std::vector<int> cpus;                 // that it may use; empty: as this process
  int error_fd = -1;                     // where ExecError goes if execve fails
  rlimit files{};                        // RLIMIT_NOFILE of the rank
};

// Written whole to error_fd by a rank whose program could not be executed.
struct ExecError {
  int rank;
  int error;  // errno
};

struct RankProcess {
  pid_t pid = 0;
  UniqueFd pidfd;
  UniqueFd out;  // reading ends, non-blocking
  UniqueFd err;
};

// Starts a process group of its own that dies with the calling thread's process, with default signal handling. Call
// from the thread that will outlive the rank. The process may have other threads.
absl::StatusOr<RankProcess> StartRank(const RankCommand& command);

}  // namespace gyre::launch
