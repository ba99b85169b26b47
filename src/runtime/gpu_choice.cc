#include "runtime/gpu_choice.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/ipc/factory.h"

namespace gyre::internal {

namespace {

// Whether each rank is on a GPU of its own.
bool AllDiffer(std::span<const GpuOffer> offers) {
  std::set<std::array<char, 16>> gpus;
  std::set<std::pair<int32_t, int64_t>> places;
  for (const GpuOffer& offer : offers) {
    gpus.insert(offer.uuid);
    places.emplace(offer.host, offer.place);
  }
  return gpus.size() == offers.size() && places.size() == offers.size();
}

// By one way for all: over several hosts NCCL, or staged.
GpuCarrier ChooseForAll(std::span<const GpuOffer> offers) {
  const GpuOffer& first = offers.front();
  const bool all_differ = AllDiffer(offers);
  const bool one_host = std::ranges::all_of(offers, [&](const GpuOffer& offer) { return offer.host == first.host; });
  const bool all_have_nccl =
      first.nccl != 0 && std::ranges::all_of(offers, [&](const GpuOffer& offer) { return offer.nccl == first.nccl; });
  if (offers.size() == 1) return GpuCarrier::kAlone;
  if (all_differ && all_have_nccl) return GpuCarrier::kNccl;
  if (!all_differ && one_host && offers.size() <= static_cast<size_t>(ipc::kMostRanks)) return GpuCarrier::kIpc;
  return GpuCarrier::kStaged;
}

// As NCCL's own releases are called; it numbers them by 10000, 100 and 1.
std::string NcclText(int32_t version) {
  return absl::StrCat(version / 10'000, ".", version / 100 % 100, ".", version % 100);
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

std::string WhyNotNccl(std::span<const GpuOffer> offers, absl::FunctionRef<std::string(int rank)> name) {
  if (offers.size() == 1 || !AllDiffer(offers)) return "";
  const int32_t first = offers.front().nccl;
  const auto named = [&](auto offer) { return name(static_cast<int>(offer - offers.begin())); };
  const auto without = std::ranges::find(offers, 0, &GpuOffer::nccl);
  if (without != offers.end()) return absl::StrCat(named(without), " has no NCCL");
  const auto other = std::ranges::find_if(offers, [first](const GpuOffer& offer) { return offer.nccl != first; });
  if (other == offers.end()) return "";
  return absl::StrCat(name(0), " has NCCL ", NcclText(first), ", ", named(other), " has ", NcclText(other->nccl));
}

}  // namespace gyre::internal
