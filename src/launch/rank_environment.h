// What the ranks find in their environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gyre::launch {

// What all ranks of a job have in common. The secret itself is never in here: only the descriptor that holds it.
struct JobIdentity {
  int size = 0;
  std::string store;      // "127.0.0.1:port"
  std::string job_id;     // random hexadecimal digits
  std::string secret_fd;  // and after a comma that of the socket for reports
  uint64_t epoch = 0;
};

// Likewise, with the descriptor of the socket for reports.
JobIdentity WithReports(JobIdentity job, int report_fd);

// kInvalidArgument unless `entry` is VAR or VAR=VALUE and VAR is none of those that gyrerun sets itself.
absl::Status CheckExport(const std::string& entry);

// "VAR=VALUE" entries for execve(2): `inherited`, then `exports` (-x), then the identity of `rank`; the later wins.
std::vector<std::string> RankEnvironment(const std::vector<std::string>& inherited,
                                         const std::vector<std::string>& exports, const JobIdentity& job, int rank);

// What to set on other hosts: gyrerun's own GYRE_* variables (not GYRE_HOST_ID, nor who gyrerun itself may be), and -x;
// a bare VAR with the value it has in `inherited`, if any.
std::vector<std::string> RemoteEnvironment(const std::vector<std::string>& inherited,
                                           const std::vector<std::string>& exports);

// Sets in `environment` what Open MPI's mpirun, torchrun and horovodrun call a rank's number and place, for programs
// that were written for one of them. `ranks_on_hosts`: how many ranks each host has, those of a host being consecutive.
// Gyre itself goes by what IdentityVariables says. REQUIRES: `rank` is on one of the hosts.
void NameRankAsOthersDo(const std::vector<uint32_t>& ranks_on_hosts, int rank, std::vector<std::string>& environment);

// Only what gyrerun sets for `rank`, for --dry-run.
std::vector<std::string> IdentityVariables(const JobIdentity& job, int rank);

}  // namespace gyre::launch
