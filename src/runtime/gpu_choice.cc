#include "runtime/gpu_choice.h"

#include <algorithm>
#include <set>
#include <vector>

#include "collectives/ipc/factory.h"

namespace gyre::internal {

namespace {

// By one way for all: over several hosts NCCL, or staged.
GpuCarrier ChooseForAll(std::span<const GpuOffer> offers) {
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

}  // namespace

GpuChoice ChooseGpuCarrier(std::span<const GpuOffer> offers) {
  GpuChoice choice{.carrier = ChooseForAll(offers)};
  if (choice.carrier != GpuCarrier::kStaged) return choice;
  std::map<int32_t, std::vector<GpuOffer>> by_host;
  for (const GpuOffer& offer : offers) by_host[offer.host].push_back(offer);
  const bool gains = by_host.size() > 1 && by_host.size() < offers.size();  // some ranks have others beside them
  if (!gains) return choice;
  std::map<int32_t, GpuCarrier> within;
  for (const auto& [host, its] : by_host) within[host] = ChooseForAll(its);
  const auto none = [](const auto& entry) { return entry.second == GpuCarrier::kStaged; };
  if (std::ranges::any_of(within, none)) return choice;
  return {.carrier = GpuCarrier::kHierarchical, .within = within};
}

}  // namespace gyre::internal
