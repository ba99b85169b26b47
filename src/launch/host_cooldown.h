// HostCooldown: where a job is started again, it leaves out for a while the hosts that were lost, as long as the others
// have slots enough. Pure; not thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/hosts.h"

namespace gyre::launch {

class HostCooldown {
 public:
  // `hosts`: all that may be used, in their order. `length` 0: no host is left out.
  HostCooldown(std::vector<HostSlots> hosts, Placement placement, Duration length)
      : hosts_(std::move(hosts)), placement_(placement), length_(length) {}

  void OnLost(const std::string& host, TimePoint now) { until_[host] = now + length_; }

  // Where so many ranks run now: not on hosts that were lost less than `length` ago; or, if the ranks do not fit then,
  // on all. REQUIRES: they fit on all.
  std::vector<HostRanks> Place(int ranks, TimePoint now) const;

  // Those that Place leaves out.
  std::vector<std::string> LeftOut(int ranks, TimePoint now) const;

 private:
  std::vector<HostSlots> Usable(int ranks, TimePoint now) const;

  const std::vector<HostSlots> hosts_;
  const Placement placement_;
  const Duration length_;
  std::map<std::string, TimePoint> until_;
};

}  // namespace gyre::launch
