#include "launch/connect_back.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "base/status.h"
#include "net/endpoint.h"
#include "net/interfaces.h"
#include "net/socket.h"

namespace gyre::launch {

uint32_t MtuOf(const std::string& interface) {
  const UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
  return any && ioctl(any.get(), SIOCGIFMTU, &request) == 0 ? static_cast<uint32_t>(request.ifr_mtu) : 0;
}

absl::StatusOr<WayToStore> ReachStore(const std::string& endpoint, TimePoint deadline) {
  ASSIGN_OR_RETURN(const Endpoint store, ParseEndpoint(endpoint));
  const absl::StatusOr<UniqueFd> connected = ConnectTcp(store, deadline);
  if (!connected.ok()) {
    return absl::UnavailableError(absl::StrCat("the store at ", endpoint,
                                               " cannot be reached: ", connected.status().message(),
                                               "; try: --interface NAME or SUBNET of the network between the hosts"));
  }
  WayToStore way;
  ASSIGN_OR_RETURN(way.address, LocalAddressOf(connected->get()));
  const absl::StatusOr<std::vector<InterfaceAddress>> interfaces = ListInterfaces();
  if (!interfaces.ok()) return way;
  const auto own = std::ranges::find(*interfaces, way.address, &InterfaceAddress::address);
  if (own == interfaces->end()) return way;
  way.interface = own->interface;
  way.mtu = MtuOf(own->interface);
  absl::StrAppend(&way.address, "/", own->prefix);
  return way;
}

}  // namespace gyre::launch
