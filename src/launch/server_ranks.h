// ServerRanks: the parameter servers of a job, as this host's processes: what they are started with, and where they are
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

  // Sockets for so many, on the loopback, and a folder for their snapshots, in the one for temporary files. Those that
  // this user's gyreruns have left there when they were killed are removed.
  absl::Status Open(int count);
  int count() const { return static_cast<int>(listeners_.size()); }

  // A server's command line for gyrerun, argv[0] first; its standard input is the listener.
  std::vector<std::string> Command(int server, uint64_t life) const;
  int listener(int server) const { return listeners_[static_cast<size_t>(server)].get(); }

  // What GYRE_STRATEGY becomes for a rank in that life. `given`: what it was.
  std::string Strategy(const std::string& given, uint64_t life) const;

 private:
  std::vector<UniqueFd> listeners_;
  std::vector<std::string> addresses_;
  std::string folder_;
  UniqueFd lock_;  // of the folder: somebody uses it
};

// `gyrerun serve NUMBER LIFE FOLDER`: one server, until SIGTERM. Standard input is its listener; it finds its job as a
// rank does. Returns the exit code.
int Serve(const std::vector<std::string>& arguments);

}  // namespace gyre::launch
