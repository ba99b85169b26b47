#include "runtime/gpu_calls.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/gpu_alone.h"
#include "collectives/ipc/factory.h"
#include "collectives/nccl/factory.h"
#include "collectives/staged/factory.h"
#include "runtime/composition.h"
#include "runtime/gpu_operation.h"

namespace gyre::internal {

absl::StatusOr<OpenedGpu> GpuCalls::Open(const Device& device) {
  std::lock_guard lock(mutex_);
  if (!gpu_) {
    ASSIGN_OR_RETURN(gpu_, runtime_->gpus().Get(device.gpu));
    staged_ = std::make_unique<staged::Backend>(host_, gpu_->rings);
  }
  if (gpu_->gpu->ordinal() == device.gpu) return *gpu_;
  return absl::InvalidArgumentError(absl::StrCat("the tensor is on GPU ", device.gpu,
                                                 "; those of this communicator were on GPU ", gpu_->gpu->ordinal(),
                                                 " of this rank, and stay on one"));
}

std::shared_ptr<Pollable> GpuCalls::Make(const Call& call, absl::Status refused, const GpuManner& manner) {
  OpenedGpu gpu;
  std::unique_ptr<GpuMarks> marks;
  if (refused.ok()) {
    auto opened = Open(DeviceOf(call));
    if (opened.ok()) {
      gpu = *std::move(opened);
      marks = std::make_unique<GpuMarks>(gpu.gpu);
      if (!manner.capturing) refused = marks->Make(call);
    } else {
      refused = opened.status();
    }
  }
  return std::make_shared<GpuOperation>(shared_from_this(), call, manner, std::move(marks), std::move(gpu),
                                        std::move(refused));
}

GpuOffer GpuCalls::Offer(const device::Gpu& gpu) const {
  GpuOffer offer{.host = runtime_->hosts()[static_cast<size_t>(runtime_->node()->rank())]};
  if (nccl::Api* const api = runtime_->gpus().nccl(); api != nullptr) offer.nccl = nccl::VersionOf(*api);
  const std::string uuid = gpu.uuid();
  std::copy_n(uuid.begin(), std::min(uuid.size(), offer.uuid.size()), offer.uuid.begin());
  return offer;
}

void GpuCalls::Choose(std::span<const GpuOffer> offers, const OpenedGpu& gpu) {
  carrier_ = ChooseGpuCarrier(offers);
  if (*carrier_ == GpuCarrier::kAlone) chosen_ = std::make_shared<GpuAlone>();
  if (*carrier_ == GpuCarrier::kIpc) chosen_ = ipc::MakeBackend(host_.shared_group(), gpu.gpu);
  if (*carrier_ != GpuCarrier::kNccl) return;
  chosen_ = nccl::MakeBackend(*runtime_->gpus().nccl(), host_.shared_group(), host_.team(), gpu.gpu, gpu.nccl_memory,
                              [progress = runtime_->progress()](const auto& owner, Lane& lane, auto watch) {
                                progress->Start(owner, lane, std::move(watch));
                              });
}

GpuBackend& GpuCalls::BackendOf(const Call& call) const {
  const auto taken = [&] {
    switch (*carrier_) {
      case GpuCarrier::kStaged: return false;
      case GpuCarrier::kAlone: return true;
      case GpuCarrier::kIpc: return ipc::Takes(call);
      case GpuCarrier::kNccl: return nccl::Takes(call);
    }
    return false;
  };
  return call.kind != CallKind::kMessage && taken() ? *chosen_ : *staged_;
}

bool GpuCalls::GoOnStaged() {
  if (carrier_ != GpuCarrier::kIpc) return false;
  carrier_ = GpuCarrier::kStaged;
  chosen_.reset();
  return true;
}

}  // namespace gyre::internal
