// GpuCalls: a communicator's operations on tensors that are on a GPU. Which backend carries its collectives is chosen
// in the first of them, by all ranks together; messages between two ranks are always staged.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "collectives/gpu_backend.h"
#include "collectives/host_calls.h"
#include "runtime/gpu_choice.h"
#include "runtime/gpus.h"

namespace gyre::internal {

class RuntimeState;

// Thread-safe.
class GpuCalls : public std::enable_shared_from_this<GpuCalls> {
 public:
  GpuCalls(HostCalls host, std::shared_ptr<RuntimeState> runtime)
      : host_(std::move(host)), runtime_(std::move(runtime)) {}

  const HostCalls& host() const { return host_; }

  // The call's operation, for its lane (HostCalls::LaneOf). It comes after what has been queued on its tensors' streams
  // until now (one that is captured, after nothing). `refused`: why this rank may not make the call. REQUIRES: a
  // message's peer is another rank; the timeout is set; captures(call), for a graph.
  std::shared_ptr<Pollable> Make(const Call& call, absl::Status refused, const GpuManner& manner = {});

  // --- For its operations, one at a time, and between them ---

  bool has_chosen() const { return carrier_.has_value(); }

  // Whether the collective can be in a graph (GpuManner), as far as is known yet: alike on all ranks.
  bool captures(const Call& call) const { return has_chosen() && BackendOf(call).captures(); }

  GpuOffer Offer(const device::Gpu& gpu) const;
  void Choose(std::span<const GpuOffer> offers, const OpenedGpu& gpu);

  // What carries the call out. REQUIRES: a message, or has_chosen().
  GpuBackend& BackendOf(const Call& call) const;

  // The collective that the chosen backend refused for `why`, with kUnavailable on all ranks, can be carried out
  // otherwise, as all are from now on.
  bool GoOnStaged(const absl::Status& why);

 private:
  absl::StatusOr<OpenedGpu> Open(const Device& device);
  std::shared_ptr<GpuBackend> MakeBackend(GpuCarrier carrier, const std::shared_ptr<Team>& team,
                                          const OpenedGpu& gpu) const;
  std::shared_ptr<GpuBackend> MakeHierarchical(const GpuChoice& choice, const OpenedGpu& gpu) const;
  void SayWhyNotNccl(std::span<const GpuOffer> offers) const;
  void SayWhyByHost(const std::string& why) const;
  int32_t this_host() const;

  const HostCalls host_;
  const std::shared_ptr<RuntimeState> runtime_;
  std::mutex mutex_;
  std::optional<OpenedGpu> gpu_;        // that the communicator's tensors are on; guarded by mutex_
  std::unique_ptr<GpuBackend> staged_;  // likewise, from then on

  // Of collectives: of whoever drives their lane.
  std::optional<GpuCarrier> carrier_;
  std::shared_ptr<GpuBackend> chosen_;  // null: staged_
};

}  // namespace gyre::internal
