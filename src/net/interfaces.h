// Which of this machine's addresses to listen at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // "10.77.0.2", "fe80::1%eth0"
  int prefix = 0;         // bits of the subnet
};

// The IPv4 and IPv6 addresses of all interfaces that are up, as the system orders them.
absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces();

// The one that `choice` means: the name of an interface, a subnet ("10.77.0.0/24", "fd00::/8") or an exact address.
// Of several that fit, the first; but IPv4 before IPv6, and link-local ones last. kInvalidArgument lists what there is.
absl::StatusOr<std::string> ChooseAddress(std::string_view choice, const std::vector<InterfaceAddress>& interfaces);

// Both in one.
absl::StatusOr<std::string> FindAddress(std::string_view choice);

// The address at which a connected or listening socket sits on this machine.
absl::StatusOr<std::string> LocalAddressOf(int fd);

// The address of a connected socket's other end.
absl::StatusOr<std::string> PeerAddressOf(int fd);

}  // namespace gyre
