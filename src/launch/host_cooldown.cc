#include "launch/host_cooldown.h"

#include <algorithm>

namespace gyre::launch {

std::vector<HostSlots> HostCooldown::Usable(int ranks, TimePoint now) const {
  std::vector<HostSlots> usable;
  int slots = 0;
  for (const HostSlots& host : hosts_) {
    const auto until = until_.find(host.name);
    if (until != until_.end() && now < until->second) continue;
    usable.push_back(host);
    slots += host.slots;
  }
  return slots >= ranks ? usable : hosts_;
}

std::vector<HostRanks> HostCooldown::Place(int ranks, TimePoint now) const {
  return PlaceRanks(Usable(ranks, now), ranks, placement_).value_or(std::vector<HostRanks>());
}

std::vector<std::string> HostCooldown::LeftOut(int ranks, TimePoint now) const {
  const std::vector<HostSlots> usable = Usable(ranks, now);
  std::vector<std::string> left_out;
  for (const HostSlots& host : hosts_) {
    if (std::ranges::find(usable, host.name, &HostSlots::name) == usable.end()) left_out.push_back(host.name);
  }
  return left_out;
}

}  // namespace gyre::launch
