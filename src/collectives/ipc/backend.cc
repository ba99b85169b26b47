#include <mutex>
#include <utility>
#include <vector>

#include "collectives/ipc/factory.h"
#include "collectives/ipc/port.h"
#include "collectives/ipc/push.h"

namespace gyre::internal::ipc {

namespace {

class Backend final : public GpuBackend {
 public:
  Backend(std::shared_ptr<Group> group, std::shared_ptr<device::Gpu> gpu, int64_t half)
      : group_(std::move(group)), gpu_(std::move(gpu)), half_(half) {}

  std::string_view name() const override { return "ipc"; }
  bool Takes(const Call& call) const override { return ipc::Takes(call); }

  std::shared_ptr<Pollable> Make(const GpuCall& call) override {
    auto operation = std::make_shared<Push>(*group_, group_->collective(), call, CurrentPort());
    operation->Hold(group_);
    return operation;
  }

 private:
  // One that did not come to be connected is of no use any more. It is kept nonetheless: its end may wait for others.
  std::shared_ptr<Port> CurrentPort() {
    std::lock_guard lock(mutex_);
    if (ports_.empty() || !ports_.back()->connected()) {
      if (group_->gpu_areas_open(group_->rank()).load() == 0) ports_.clear();
      ports_.push_back(std::make_shared<Port>(group_, gpu_, half_));
    }
    return ports_.back();
  }

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<device::Gpu> gpu_;
  const int64_t half_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Port>> ports_;  // the latest is last; guarded by mutex_
};

}  // namespace

bool Takes(const Call& call) {
  switch (call.kind) {
    case CallKind::kBarrier:
    case CallKind::kMessage:
    case CallKind::kRefused: return false;
    default: return call.op != ReduceOp::kAdasum;
  }
}

std::shared_ptr<GpuBackend> MakeBackend(std::shared_ptr<Group> group, std::shared_ptr<device::Gpu> gpu, int64_t half) {
  return std::make_shared<Backend>(std::move(group), std::move(gpu), half);
}

}  // namespace gyre::internal::ipc
