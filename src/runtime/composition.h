// Composition: where the parts of a runtime are put together. Nothing below knows of more than its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/config.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/process_mark.h"
#include "bootstrap/membership.h"
#include "collectives/hierarchical/team.h"
#include "collectives/mpi/factory.h"
#include "collectives/shm/group.h"
#include "runtime/clock_offset.h"
#include "runtime/gpu_calls.h"
#include "runtime/gpus.h"
#include "runtime/interconnect.h"
#include "runtime/observatory.h"
#include "runtime/progress.h"
#include "runtime/topology.h"
#include "transport/shm/node.h"

namespace gyre::internal {

// What a communicator's ranks meet in: the memory of this host, and where there are several hosts, what joins them.
struct Meetings {
  std::shared_ptr<Group> group;  // of the communicator's ranks on this host
  std::shared_ptr<Team> team;    // null: all its ranks are on this host

  // Of the world, where it is asked for: what carries its collectives out instead.
  std::shared_ptr<mpi::Backend> mpi{};
};

// Who this process is in its job, and what it proves that with.
struct JobAccess {
  std::string job_id;
  std::string secret;
  uint64_t epoch = 0;
  int rank = 0;
  int size = 1;
};

// Shared by a runtime and whatever outlives it (communicators, works, buffers).
class RuntimeState {
 public:
  // Joins the job: all of Runtime::Create.
  static absl::StatusOr<std::shared_ptr<RuntimeState>> Join(const Config& config, const Environment& environment);
  ~RuntimeState();

  const Config& config() const { return config_; }
  const Logger& logger() const { return logger_; }
  const std::shared_ptr<shm::Node>& node() const { return node_; }

  // The process that joined the job. In a forked child of it nothing of the runtime may be used, and none of it is
  // destroyed (KeepUntilExit). REQUIRES: Join was OK.
  const ProcessMark& process() const { return node_->process(); }

  const std::shared_ptr<Progress>& progress() const { return progress_; }
  const Meetings& world() const { return world_; }
  const JobAccess& job() const { return job_; }

  // This process took the place of one that died after the ranks had met, and has joined nobody: its world is empty
  // but for itself.
  bool apart() const { return apart_; }

  // By which algorithms between hosts are chosen; null: one host.
  const PathModel* network_model() const {
    return interconnect_ == nullptr ? nullptr : &interconnect_->selector()->model();
  }

  // Through streams to other hosts; empty: one host, or MPI carries the collectives, which counts for itself.
  std::optional<int64_t> bytes_sent() const {
    if (interconnect_ == nullptr || world_.mpi != nullptr) return std::nullopt;
    return interconnect_->bytes_sent();
  }
  const std::vector<int>& hosts() const { return hosts_; }  // by rank of the job: the number of its host

  // Whether the ranks' timelines need one clock: they write some, all of them, on several hosts.
  bool needs_one_clock() const { return needs_one_clock_; }

  // Opens what the configuration asks for, before the program's first call. `offset`: of this host's clock.
  absl::Status Observe(const ClockOffset& offset);

  Gpus& gpus() { return gpus_; }

  // Null: nobody watches.
  CallObserver* observer() const { return observatory_.get(); }

  // Those of `ranks` (of the job) that are on this rank's host.
  std::vector<int> OnThisHost(std::span<const int> ranks) const;

  // A communicator of these ranks of the job, this one among them. `regions`: by rank of the communicator, where in its
  // control segment its region begins, laid out for the communicator's ranks on its host. `id`: agreed among all,
  // unique in the job; needed over several hosts only.
  absl::StatusOr<Meetings> Meet(const std::vector<int>& ranks, std::span<const int64_t> regions, uint64_t id) const;

  // True once: this rank's place with the parameter servers, which know it by its number, is taken.
  bool TakePlaceWithServers() { return !has_place_with_servers_.exchange(true); }

  void Shutdown();

 private:
  explicit RuntimeState(const Config& config) : config_(config) {}
  absl::Status Connect(const Environment& environment, TimePoint deadline);
  absl::Status ComeBack();
  absl::Status ConnectPeers(const Environment& environment, shm::OwnMemory own, TimePoint deadline);
  absl::Status ConnectHosts(const std::vector<RankPlace>& places, TimePoint deadline);
  absl::Status StartNode(shm::OwnMemory own, std::vector<shm::Link> links, std::vector<std::string> names);
  absl::Status MakeWorld(TimePoint deadline);

  const Config config_;
  Logger logger_;
  std::mutex mutex_;
  std::unique_ptr<Membership> membership_;  // until Shutdown; guarded by mutex_ once joined
  JobAccess job_;
  bool apart_ = false;
  std::vector<int> hosts_;
  std::vector<Domain> domains_;  // by rank of the job: where on its host it runs; empty: not known
  std::atomic<bool> has_place_with_servers_{false};
  bool crowded_ = false;
  bool needs_one_clock_ = false;
  std::unique_ptr<Observatory> observatory_;    // outlives what progress_ drives
  std::shared_ptr<Interconnect> interconnect_;  // null: one host
  std::shared_ptr<shm::Node> node_;
  std::shared_ptr<Progress> progress_;
  Meetings world_;
  Gpus gpus_;
};

// What a Communicator is.
class CommunicatorState {
 public:
  CommunicatorState(std::shared_ptr<RuntimeState> runtime, Meetings meetings)
      : runtime_(std::move(runtime)),
        meetings_(std::move(meetings)),
        owner_(OwnerOf(meetings_)),
        process_(runtime_->process()),
        apart_(runtime_->apart()),
        gpu_calls_(std::make_shared<GpuCalls>(HostCalls(meetings_.group, meetings_.team), runtime_)) {}

  // Nobody else of the communicator can be reached: RuntimeState::apart.
  bool apart() const { return apart_; }

  // RuntimeState::process.
  const ProcessMark& process() const { return process_; }

  RuntimeState& runtime() const { return *runtime_; }
  const std::shared_ptr<RuntimeState>& shared_runtime() const { return runtime_; }
  const std::shared_ptr<Group>& group() const { return meetings_.group; }
  const std::shared_ptr<Team>& team() const { return meetings_.team; }
  const std::shared_ptr<mpi::Backend>& mpi() const { return meetings_.mpi; }

  // Its operations on tensors that are on GPUs.
  const std::shared_ptr<GpuCalls>& gpu_calls() const { return gpu_calls_; }

  // What the lanes belong to, for who only keeps it alive.
  const std::shared_ptr<void>& owner() const { return owner_; }

  // Numbers the calls of Split, which all ranks make in one order.
  uint64_t NextSplit() { return splits_.fetch_add(1) + 1; }

 private:
  static std::shared_ptr<void> OwnerOf(const Meetings& meetings) {
    if (meetings.team != nullptr) return meetings.team;
    return meetings.group;
  }

  const std::shared_ptr<RuntimeState> runtime_;
  const Meetings meetings_;
  const std::shared_ptr<void> owner_;
  const ProcessMark& process_;  // the node's
  const bool apart_;
  const std::shared_ptr<GpuCalls> gpu_calls_;
  std::atomic<uint64_t> splits_{0};
};

}  // namespace gyre::internal
