// Runtime: this rank's membership in a job. It owns all that Gyre holds: connections, shared memory, threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gyre/arena.h"
#include "gyre/communicator.h"
#include "gyre/export.h"
#include "gyre/job_report.h"
#include "gyre/options.h"

namespace gyre {

namespace internal {
class Reporter;
class RuntimeState;
}  // namespace internal

// What the network between the job's hosts is taken for where the algorithms of a collective are chosen: the same
// numbers on all ranks. Measured when the job starts, in some ms; nominal where GYRE_ALGORITHMS says so, or no
// measuring was possible.
struct NetworkModel {
  double latency_us = 0;                    // one way, of the slowest link that was measured
  double gigabits_per_second = 0;           // one way, likewise
  double reduced_gigabytes_per_second = 0;  // of what arrives, by the slowest rank
};

// Several runtimes may live in one process. Thread-safe. A child that the process forks is no rank of the job: there
// calls on the runtime, and on what was made with it, return kFailedPrecondition, and destroying them has no effect
// (docs/threading.md).
class GYRE_EXPORT Runtime {
 public:
  // Joins the job this process was started in: finds its rank from `options`, GYRE_* variables or the launcher, meets
  // the other ranks, maps their memory. Without any launcher it is a job of one rank. Blocks until all ranks are there
  // or start_timeout has passed.
  //   kDeadlineExceeded    names the ranks that did not come
  //   kFailedPrecondition  the environment contradicts itself, or no secret is to be had; says what to do
  //   kUnauthenticated     the store or a rank holds another secret
  //   kAborted             the job was restarted and this process is left over from an older epoch (GYRE_EPOCH)
  //   kUnimplemented       the launcher started ranks on several hosts, and they have no store to meet in: give them
  //                        GYRE_STORE and GYRE_SECRET_FILE
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(const RuntimeOptions& options = {});

  // Shuts down.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // All ranks of the job. Lives as long as the runtime.
  Communicator& world();

  // Whether this process took the place of one that died, while the others go on (gyrerun --restart-rank). Its world
  // then has a rank and a size, but all its operations end in kFailedPrecondition; parameter servers are there.
  bool rejoined() const;

  // Memory that the host's ranks share. Local call: ranks need not allocate alike.
  //   kInvalidArgument if bytes < 0; kResourceExhausted if the arena or the machine has no more.
  absl::StatusOr<Buffer> Allocate(int64_t bytes);

  // Memory on a GPU of this process, or as above where `device` is the host. Where ranks have NCCL, larger pieces come
  // from that, and communicators register them (docs/gpu_backends.md).
  //   kInvalidArgument if bytes < 0, or there is no such GPU; kResourceExhausted if it has not enough
  //   kUnimplemented, kUnavailable  CUDA cannot be used: says why
  absl::StatusOr<Buffer> Allocate(int64_t bytes, const Device& device);

  // Empty where all ranks are on one host.
  std::optional<NetworkModel> network_model() const;

  // Bytes that this rank has given the network so far for other hosts: what collectives and messages send, with Gyre's
  // headers of 64 bytes a block; without the headers of TCP or UCX, heartbeats and bad news. Empty where all ranks are
  // on one host, or MPI carries the collectives. Any thread.
  std::optional<int64_t> bytes_sent() const;

  // Tells gyrerun how far the work is (job_report.h); under another launcher it goes nowhere. A step's report costs
  // next to nothing: ten a second are passed on. One with a phase or an activity always is, and may take 0.1 s where
  // gyrerun is held up. kInvalidArgument if the activity is no word or a number is negative.
  absl::Status Report(const JobReport& report);

  // Leaves the job: pending operations end in kFailedPrecondition, peers that wait for this rank in kAborted. Waits
  // for no peer. Idempotent, from any thread, also while others are in calls.
  void Shutdown();

 private:
  Runtime(std::shared_ptr<internal::RuntimeState> state, std::unique_ptr<internal::Reporter> reporter);

  std::shared_ptr<internal::RuntimeState> state_;
  std::unique_ptr<internal::Reporter> reporter_;
  std::unique_ptr<Communicator> world_;
};

}  // namespace gyre
