#include "runtime/gpu_calls.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "collectives/gpu_alone.h"
#include "collectives/gpu_hierarchical/factory.h"
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

int32_t GpuCalls::this_host() const {
  return runtime_->hosts()[static_cast<size_t>(runtime_->node()->rank())];
}

GpuOffer GpuCalls::Offer(const device::Gpu& gpu) const {
  GpuOffer offer{.place = gpu.place(), .host = this_host()};
  if (nccl::Api* const api = runtime_->gpus().nccl(); api != nullptr) offer.nccl = nccl::VersionOf(*api);
  const std::string uuid = gpu.uuid();
  std::copy_n(uuid.begin(), std::min(uuid.size(), offer.uuid.size()), offer.uuid.begin());
  return offer;
}

void GpuCalls::Choose(std::span<const GpuOffer> offers, const OpenedGpu& gpu) {
  const GpuChoice choice = ChooseGpuCarrier(offers);
  carrier_ = choice.carrier;
  SayWhyNotNccl(offers);
  chosen_ = choice.carrier == GpuCarrier::kHierarchical ? MakeHierarchical(choice, gpu)
                                                        : MakeBackend(choice.carrier, host_.team(), gpu);
}

void GpuCalls::SayWhyNotNccl(std::span<const GpuOffer> offers) const {
  std::string why = WhyNotNccl(offers, [this](int rank) {
    return host_.team() != nullptr ? host_.team()->RankName(rank) : host_.group().RankName(rank);
  });
  if (why.empty()) return;
  const absl::Status own = runtime_->gpus().WhyNoNccl();
  if (!own.ok()) absl::StrAppend(&why, "; here: ", own.message());
  SayWhyByHost(why);
}

// All ranks know, so the first alone warns; what the others may know besides is for who asks for more.
void GpuCalls::SayWhyByHost(const std::string& why) const {
  if (!runtime_->gpus().IsNews(why)) return;
  const bool between_hosts = carrier_ == GpuCarrier::kHierarchical;
  const std::string text = absl::StrCat("collectives of tensors on GPUs go through the host's memory",
                                        between_hosts ? " between hosts" : "", ": ", why);
  host_.rank() == 0 ? runtime_->logger().Warn(text) : runtime_->logger().Info(text);
}

// Of the ranks of this host, or of those of `team`. Null: staged_ does it.
std::shared_ptr<GpuBackend> GpuCalls::MakeBackend(GpuCarrier carrier, const std::shared_ptr<Team>& team,
                                                  const OpenedGpu& gpu) const {
  switch (carrier) {
    case GpuCarrier::kAlone: return std::make_shared<GpuAlone>();
    case GpuCarrier::kIpc: return ipc::MakeBackend(host_.shared_group(), gpu.gpu);
    case GpuCarrier::kNccl:
      return nccl::MakeBackend(*runtime_->gpus().nccl(), host_.shared_group(), team, gpu.gpu, gpu.nccl_memory,
                               [progress = runtime_->progress()](const auto& owner, Lane& lane, auto watch) {
                                 progress->Start(owner, lane, std::move(watch));
                               });
    default: return nullptr;
  }
}

std::shared_ptr<GpuBackend> GpuCalls::MakeHierarchical(const GpuChoice& choice, const OpenedGpu& gpu) const {
  const auto goes_by = [&choice](GpuCarrier carrier) {
    return std::ranges::any_of(choice.within, [carrier](const auto& entry) { return entry.second == carrier; });
  };
  const auto taken = [by_ipc = goes_by(GpuCarrier::kIpc), by_nccl = goes_by(GpuCarrier::kNccl)](const Call& call) {
    return (!by_ipc || ipc::Takes(call)) && (!by_nccl || nccl::Takes(call));
  };
  return gpu_hierarchical::MakeBackend(host_, gpu.rings, MakeBackend(choice.within.at(this_host()), nullptr, gpu),
                                       taken);
}

GpuBackend& GpuCalls::BackendOf(const Call& call) const {
  const bool taken = call.kind != CallKind::kMessage && *carrier_ != GpuCarrier::kStaged && chosen_->Takes(call);
  return taken ? *chosen_ : *staged_;
}

// Once it has connected it refuses nothing; its errors break the communicator. It stays until the communicator's end:
// where this host's ranks could connect, its own end waits for theirs.
bool GpuCalls::GoOnStaged(const absl::Status& why) {
  const bool connects = carrier_ == GpuCarrier::kIpc || carrier_ == GpuCarrier::kHierarchical;
  if (!connects || !host_.group().usable()) return false;
  carrier_ = GpuCarrier::kStaged;
  SayWhyByHost(std::string(why.message()));
  return true;
}

}  // namespace gyre::internal
