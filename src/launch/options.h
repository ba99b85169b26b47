// gyrerun's command line.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/watch_options.h"

namespace gyre::launch {

inline constexpr int kMaxRanks = 4096;  // on one host
inline constexpr int kMaxServers = 256;

struct Options {
  int ranks = 0;                     // 0, over hosts: as many as there are slots
  std::vector<std::string> exports;  // -x, as given: VAR or VAR=VALUE
  bool tag_output = false;
  bool timestamp_output = false;
  std::string output_dir;  // empty: no files
  std::string timeline;    // absolute path; empty: none
  std::optional<std::chrono::milliseconds> timeout;
  std::chrono::milliseconds settle{2'000};
  std::chrono::milliseconds grace{5'000};
  int max_restarts = 0;
  int servers = 0;                                 // parameter servers beside the ranks
  std::vector<std::string> server_hosts;           // where they are; empty: on the ranks' hosts
  bool colocate_servers = false;                   // as many as ranks, one beside each; then servers is 0
  int replicas = 0;                                // how many other servers have what one acknowledged: 0 or 1
  int restart_rank = 0;                            // how often each rank and server that dies is started again, alone
  std::chrono::milliseconds restart_delay{1'000};  // before the first one
  std::string status_file;                         // empty: none
  bool verbose = false;
  bool dry_run = false;
  std::vector<std::string> command;  // PROGRAM and its arguments
  WatchOptions watch;

  // Over hosts
  std::string host_list;                 // -H, as given
  std::string hostfile;                  // its path
  std::string hosts_from;                // --hosts-from: auto, mpijob, slurm, sagemaker; or empty
  std::string discovery_script;          // a command that prints hosts; or empty
  int slots_per_host = 1;                // where a script or platform names hosts without slots
  std::string remote_shell;              // CMD with its options, apart by blanks; empty: ssh
  std::vector<std::string> ssh_options;  // for ssh, where there is no remote_shell
  int least_ranks = 0;                   // --min-np: of slots that vary; 0: `ranks` is what counts
  int most_ranks = 0;                    // --max-np, likewise
  std::string remote_gyrerun;            // gyrerun's path on the hosts; empty: the same as here
  std::string interface;                 // --interface, or else GYRE_INTERFACE, or empty
  std::chrono::milliseconds start_timeout{60'000};
  std::chrono::milliseconds host_timeout{1'500};  // a host that is silent for longer is lost
  std::string shared_volume;                      // a folder that containers of one machine share; or empty
  bool preflight_only = false;                    // get all hosts ready, tell of them, start nothing
  bool agent = false;                             // this is not the launcher but its agent on a host

  // Whether it is said where to run. --hosts-from auto may still find that it is this host.
  bool over_hosts() const {
    return !(host_list.empty() && hostfile.empty() && hosts_from.empty() && discovery_script.empty());
  }

  std::vector<std::string> notes;  // to say before the start, a line each

  // Whether there are parameter servers, and how many for so many ranks.
  bool has_servers() const { return servers > 0 || colocate_servers; }
  int ServersFor(int job_ranks) const { return colocate_servers ? job_ranks : servers; }

  std::optional<std::string> answer;  // set by --help, --version, --check-build: print it and exit 0
};

// kInvalidArgument: one line that says what is wrong and ends with what to try next.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments);

// kInvalidArgument likewise, where so many ranks ask for more servers than there may be.
absl::Status CheckServers(const Options& options, int ranks);

}  // namespace gyre::launch
