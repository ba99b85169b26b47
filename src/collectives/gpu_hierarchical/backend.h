// Backend: what the calls of a communicator share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "collectives/gpu_hierarchical/chunks.h"
#include "collectives/gpu_hierarchical/factory.h"
#include "collectives/members.h"

namespace gyre::internal::gpu_hierarchical {

// Calls are made in one order, as of any communicator; otherwise thread-safe.
class Backend final : public GpuBackend, public std::enable_shared_from_this<Backend> {
 public:
  Backend(HostCalls host, std::shared_ptr<staged::Rings> rings, std::shared_ptr<GpuBackend> within,
          std::function<bool(const Call&)> taken_within)
      : host_(std::move(host)),
        members_{host_.shared_group(), host_.team()},
        rings_(std::move(rings)),
        within_(std::move(within)),
        taken_within_(std::move(taken_within)) {}

  std::string_view name() const override { return "hierarchical"; }
  bool Takes(const Call& call) const override;
  std::shared_ptr<Pollable> Make(const GpuCall& call) override;
  bool sound() const override { return within_->sound(); }

  const HostCalls& host() const { return host_; }
  const Members& members() const { return members_; }
  Team& team() const { return *host_.team(); }
  staged::Rings& rings() const { return *rings_; }
  GpuBackend& within() const { return *within_; }
  Limits limits() const { return {.slot_bytes = rings_->sizes().slot_bytes, .slots = rings_->sizes().slots}; }

  // What a call is to end with of which a part has ended so; `context` says which it is. What begins after the
  // communicator was broken does not say for what.
  absl::Status Explain(const absl::Status& part, const std::string& context) const;

  // Likewise, of an error of a part within the host: breaks the communicator on all hosts.
  absl::Status BreakLike(const absl::Status& within_host, const std::string& context) const;

  // Whether the ranks of all hosts have connected.
  bool connected() const { return connected_; }
  void MarkConnected() { connected_ = true; }

 private:
  const HostCalls host_;
  const Members members_;
  const std::shared_ptr<staged::Rings> rings_;
  const std::shared_ptr<GpuBackend> within_;
  const std::function<bool(const Call&)> taken_within_;
  bool connected_ = false;
};

}  // namespace gyre::internal::gpu_hierarchical
