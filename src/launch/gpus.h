// NVIDIA's GPUs of this host, as the driver's library NVML sees them (launch/nvml_abi.h). The library is loaded when
// the first Gpus is made: a host without has none, and is told so.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre::launch {

// What a rank has of the GPUs at a moment.
struct GpuUsage {
  double gpus = 0;      // busy ones: 0.5 is half of one
  uint64_t memory = 0;  // bytes, on all of them
};

// Whether this process is numbered as the machine's own processes are.
bool InFirstPidNamespace();

// Not thread-safe. A look takes about a millisecond a device; no call waits for a device's work.
class Gpus {
 public:
  // kUnavailable: there is no library, or no driver that answers it; says which.
  // `knows_processes`: the driver calls processes as they are called here.
  static absl::StatusOr<std::unique_ptr<Gpus>> Open(bool knows_processes = InFirstPidNamespace());
  ~Gpus();
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  int count() const;
  std::string driver() const;  // "550.54.15"; empty: it does not say
  std::string cuda() const;    // the newest that the driver can do, "12.4"; likewise

  // Of each tree of processes: by what the driver says of them. Where it does not know them (in a container with a PID
  // namespace of its own), the whole device that has the tree's number is taken for its own: as programs choose it by
  // their local rank. `numbers`: those of the trees. Nothing for whom there is no such device.
  std::vector<std::optional<GpuUsage>> Look(const std::vector<std::vector<pid_t>>& trees,
                                            const std::vector<int>& numbers) const;

 private:
  struct Library;
  Gpus(std::unique_ptr<Library> library, bool knows_processes);

  std::unique_ptr<Library> library_;
  const bool knows_processes_;
};

// NCCL's version by the library that a program would load here, "2.21.5"; empty: there is none. Loads it.
std::string NcclVersion();

}  // namespace gyre::launch
