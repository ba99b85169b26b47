// ServerRanks: the parameter servers of a job that run on this host: what they are started with, and where they are
// found. A server's socket is made once and handed to each of its lives, so that its address stays, and who calls
// while there is none waits in the queue.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"

namespace gyre::launch {

class ServerRanks {
 public:
  ServerRanks() = default;
  // Removes the folder of the servers' snapshots.
  ~ServerRanks();
  ServerRanks(const ServerRanks&) = delete;
  ServerRanks& operator=(const ServerRanks&) = delete;

  // Sockets for servers `first`, `first` + 1, ..., so many, at that address of this host, and a folder for their
  // snapshots, in the one for temporary files. Those that this user's gyreruns have left there when they were killed
  // are removed.
  absl::Status Open(const std::string& address, int first, int count);
  int count() const { return static_cast<int>(listeners_.size()); }
  const std::vector<std::string>& addresses() const { return addresses_; }  // "HOST:PORT", in the servers' order

  // A server's command line for gyrerun, argv[0] first; its standard input is the listener.
  std::vector<std::string> Command(int server, uint64_t life) const;
  int listener(int server) const { return listeners_[static_cast<size_t>(server - first_)].get(); }

 private:
  int first_ = 0;
  std::vector<UniqueFd> listeners_;
  std::vector<std::string> addresses_;
  std::string folder_;
  UniqueFd lock_;  // of the folder: somebody uses it
};

// "VAR=VALUE" for all processes of a job whose servers have replicas: what StrategyVariable is to go on from.
std::string ReplicasVariable(const std::vector<std::string>& exports, int replicas);

// "GYRE_STRATEGY=..." for a process in that life, of a job whose servers are at `addresses`, by number: what the last
// entry of `exports` ("VAR=VALUE") or else this process's own environment says, and where the servers are.
std::string StrategyVariable(const std::vector<std::string>& exports, const std::vector<std::string>& addresses,
                             uint64_t life);

// `gyrerun serve NUMBER LIFE FOLDER`: one server, until SIGTERM. Standard input is its listener; it finds its job as a
// rank does. Returns the exit code, which is never 0: a server has no end of its own.
int Serve(const std::vector<std::string>& arguments);

}  // namespace gyre::launch
