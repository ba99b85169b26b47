#include "runtime/gpu_choice.h"

#include <algorithm>
#include <set>

#include "collectives/ipc/factory.h"

namespace gyre::internal {

GpuCarrier ChooseGpuCarrier(std::span<const GpuOffer> offers) {
  const GpuOffer& first = offers.front();
  std::set<std::array<char, 16>> gpus;
  for (const GpuOffer& offer : offers) gpus.insert(offer.uuid);
  const bool all_differ = gpus.size() == offers.size();
  const bool one_host = std::ranges::all_of(offers, [&](const GpuOffer& offer) { return offer.host == first.host; });
  const bool all_have_nccl =
      first.nccl != 0 && std::ranges::all_of(offers, [&](const GpuOffer& offer) { return offer.nccl == first.nccl; });
  if (offers.size() == 1) return GpuCarrier::kAlone;
  if (all_differ && all_have_nccl) return GpuCarrier::kNccl;
  if (!all_differ && one_host && offers.size() <= static_cast<size_t>(ipc::kMostRanks)) return GpuCarrier::kIpc;
  return GpuCarrier::kStaged;
}

}  // namespace gyre::internal
