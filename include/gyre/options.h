// Options of a Runtime. Each field that is left unset is taken from its environment variable, and failing that from
// the launcher (identity) or the default given here. What is set in code wins over the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace gyre {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

// What carries the collectives of a runtime's world out (native, mpi), and what carries data between hosts (native
// and mpi: TCP; ucx).
enum class Backend : uint8_t { kNative, kMpi, kUcx };

// How gradients become weights: every rank updates its own copy with the average over all ranks, or parameter servers
// hold the weights and update them (gyre/parameter_server.h).
enum class Strategy : uint8_t { kAllreduce, kParameterServer };

// Of training through parameter servers: when a worker may begin a step.
enum class Consistency : uint8_t {
  kBsp,   // once all workers' gradients of all steps before are in
  kSsp,   // once those of all but the last few steps (the staleness) are
  kAsync  // at once
};

// How parameter servers send values to workers: as they are, or rounded, in 2 bytes or (blocks of 256 elements with a
// scale each) 1.02. Servers' own values are never rounded.
enum class ValueFormat : uint8_t { kF32, kF16, kBF16, kInt8 };

struct RuntimeOptions {
  // --- Identity: normally found from the launcher (gyrerun, mpirun, torchrun, horovodrun, Slurm) ---
  std::optional<int> rank{};                 // GYRE_RANK
  std::optional<int> size{};                 // GYRE_SIZE
  std::optional<std::string> store{};        // GYRE_STORE: "host:port" of the rendezvous store; rank 0 serves it there
                                             // unless a launcher does
  std::optional<std::string> job_id{};       // GYRE_JOB_ID: what tells this job from another on the same store
  std::optional<int64_t> epoch{};            // GYRE_EPOCH: how often the job was restarted: what is left over from an
                                             // older epoch is kept out; default: the launcher's count of restarts, or 0
  std::optional<std::string> secret{};       // the job's secret itself (16 bytes at least); code only, never a variable
  std::optional<std::string> secret_file{};  // GYRE_SECRET_FILE: a file of mode 0600 that holds the secret
  std::optional<std::string> host_id{};      // GYRE_HOST_ID: ranks with equal ids share memory; default: boot id and
                                             // network namespace

  std::optional<std::string> interface {};  // GYRE_INTERFACE: where traffic between hosts goes: the name of a network
                                            // interface ("eth0"), a subnet ("10.0.0.0/8") or an address of this
                                            // machine; default: the interface that leads to the store

  std::optional<bool> checksum_data{};  // GYRE_CHECKSUM_DATA (0 or 1): what this rank sends to other hosts carries
                                        // checksums, beyond TCP's own. Damage is an error at its
                                        // receiver, and no other rank takes it on. Default: no

  std::optional<std::string> algorithms{};  // GYRE_ALGORITHMS: of collectives over several hosts, instead of what the
                                            // network's measured latency and bandwidth suggest:
                                            // "allreduce=ring,alltoall=bruck"; "nominal": nothing is measured, so that
                                            // every run chooses alike. The same on all ranks. docs/algorithms.md

  std::optional<int> streams{};  // GYRE_STREAMS (1 to 16): TCP connections that collectives use between two ranks. More
                                 // than 1, the default, helps only where one does not fill the link. The same on all
                                 // ranks

  std::optional<Backend> backend{};  // GYRE_BACKEND (native, mpi or ucx): mpi leaves the world's collectives, of host
                                     // tensors, to the MPI that started the job; all else stays Gyre's own. ucx sends
                                     // all between hosts by UCX instead of TCP, native by TCP; the same on all ranks.
                                     // Default: native, but by UCX where every rank can use an RDMA port and UCX, and
                                     // the links are not slower with it.
                                     // docs/decisions/mpi_backend.md, docs/decisions/ucx_transport.md

  std::optional<std::string> strategy{};  // GYRE_STRATEGY: what a DistributedOptimizer does that is not told in code:
                                          // "allreduce", the default, or "ps,consistency=ssp,staleness=4":
                                          // docs/parameter_server.md

  // --- Time ---
  std::optional<std::chrono::milliseconds> start_timeout{};       // GYRE_START_TIMEOUT (seconds), 60 s: all ranks there
  std::optional<std::chrono::milliseconds> operation_timeout{};   // GYRE_TIMEOUT (seconds), 300 s: one operation
  std::optional<std::chrono::milliseconds> heartbeat_interval{};  // GYRE_HEARTBEAT_INTERVAL_MS, 100 ms
  std::optional<std::chrono::milliseconds> heartbeat_timeout{};   // GYRE_HEARTBEAT_TIMEOUT_MS, 1000 ms: a rank that
                                                                  // is stopped, or on another host and silent, is lost;
                                                                  // ten times that: a silent one of this host. 0: never

  // --- Memory and waiting ---
  std::optional<int64_t> arena_bytes{};  // GYRE_ARENA_BYTES: most that Runtime::Allocate may hand out; address space
                                         // until it is used; default: this machine's memory, but at most
                                         // 2^45 bytes / size^2 (at least 1 GiB): every rank maps all arenas
  std::optional<bool> spin{};            // GYRE_SPIN (0 or 1): whether a waiting rank may spin; default: in jobs on one
                                         // host, where its ranks do not outnumber the union of their CPUs

  std::optional<LogLevel> log_level{};  // GYRE_LOG_LEVEL: debug, info, warning (default), error, off
};

}  // namespace gyre
