// The way from a host to the job's store, tried before any rank starts: a host that a remote shell leads to need not
// reach the others by itself.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace gyre::launch {

// How this host goes there.
struct WayToStore {
  std::string address;    // of this host, with its subnet: "10.77.0.2/24"
  std::string interface;  // "eth0"; empty where the system does not say
  uint32_t mtu = 0;       // its; 0: not known
};

// Connects and hangs up, which the store takes for a stranger. Blocks until the deadline at most. Errors say why not,
// and what to try.
absl::StatusOr<WayToStore> ReachStore(const std::string& endpoint, TimePoint deadline);

// The MTU of an interface; 0: not known.
uint32_t MtuOf(const std::string& interface);

}  // namespace gyre::launch
