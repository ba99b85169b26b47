// Composition: where the parts of a runtime are put together. Nothing below knows of more than its own.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "base/config.h"
#include "base/environment.h"
#include "base/log.h"
#include "bootstrap/membership.h"
#include "collectives/shm/group.h"
#include "runtime/progress.h"
#include "transport/shm/node.h"

namespace gyre::internal {

// Shared by a runtime and whatever outlives it (communicators, works, buffers).
class RuntimeState {
 public:
  // Joins the job: all of Runtime::Create.
  static absl::StatusOr<std::shared_ptr<RuntimeState>> Join(const Config& config, const Environment& environment);
  ~RuntimeState();

  const Config& config() const { return config_; }
  const std::shared_ptr<shm::Node>& node() const { return node_; }
  const std::shared_ptr<Progress>& progress() const { return progress_; }
  const std::shared_ptr<Group>& world() const { return world_; }

  void Shutdown();

 private:
  explicit RuntimeState(const Config& config) : config_(config) {}
  absl::Status ConnectHost(const Environment& environment);

  const Config config_;
  Logger logger_;
  std::mutex mutex_;
  std::unique_ptr<Membership> membership_;  // until Shutdown; guarded by mutex_ once joined
  std::shared_ptr<shm::Node> node_;
  std::shared_ptr<Progress> progress_;
  std::shared_ptr<Group> world_;
};

// What a Communicator is.
class CommunicatorState {
 public:
  CommunicatorState(std::shared_ptr<RuntimeState> runtime, std::shared_ptr<Group> group)
      : runtime_(std::move(runtime)), group_(std::move(group)), owner_(group_) {}

  RuntimeState& runtime() const { return *runtime_; }
  const std::shared_ptr<RuntimeState>& shared_runtime() const { return runtime_; }
  const std::shared_ptr<Group>& group() const { return group_; }
  const std::shared_ptr<void>& owner() const { return owner_; }  // the group, for who only keeps it alive

 private:
  const std::shared_ptr<RuntimeState> runtime_;
  const std::shared_ptr<Group> group_;
  const std::shared_ptr<void> owner_;
};

}  // namespace gyre::internal
