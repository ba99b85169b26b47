#include "net/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace gyre {

namespace {

// An address in network byte order: 4 or 16 bytes. A zone ("%eth0") is left out.
std::optional<std::string> ParseAddress(std::string_view text) {
  const std::string host(text.substr(0, text.find('%')));
  std::string bytes(sizeof(in6_addr), '\0');
  if (inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1) return bytes;
  bytes.resize(sizeof(in_addr));
  if (inet_pton(AF_INET, host.c_str(), bytes.data()) == 1) return bytes;
  return std::nullopt;
}

struct Subnet {
  std::string bytes;
  size_t prefix;
};

std::optional<Subnet> ParseSubnet(std::string_view text) {
  const size_t slash = text.find('/');
  const auto bytes = ParseAddress(text.substr(0, slash));
  if (!bytes) return std::nullopt;
  size_t prefix = 8 * bytes->size();
  if (slash == std::string_view::npos) return Subnet{*bytes, prefix};
  uint32_t given = 0;
  if (!absl::SimpleAtoi(ToAbsl(text.substr(slash + 1)), &given) || given > prefix) return std::nullopt;
  return Subnet{*bytes, given};
}

bool Contains(const Subnet& subnet, const std::string& address) {
  if (address.size() != subnet.bytes.size()) return false;
  for (size_t bit = 0; bit < subnet.prefix; ++bit) {
    const int difference = subnet.bytes[bit / 8] ^ address[bit / 8];
    if (((difference >> (7 - bit % 8)) & 1) != 0) return false;
  }
  return true;
}

// Smaller is better: IPv4, IPv6, link-local of either.
int Rank(const std::string& address) {
  const bool v6 = address.size() == sizeof(in6_addr);
  const bool link_local = Contains(
      v6 ? Subnet{ParseAddress("fe80::").value(), 10} : Subnet{ParseAddress("169.254.0.0").value(), 16}, address);
  return (link_local ? 2 : 0) + (v6 ? 1 : 0);
}

absl::StatusOr<std::string> AddressText(const sockaddr* address) {
  const socklen_t length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST];
  const int error = getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  if (error != 0) return absl::InternalError(absl::StrCat("cannot print an address: ", gai_strerror(error)));
  return std::string(text);
}

absl::StatusOr<std::string> TcpAddressText(const sockaddr_storage& storage) {
  if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) {
    return absl::InvalidArgumentError("the socket is not a TCP socket");
  }
  return AddressText(reinterpret_cast<const sockaddr*>(&storage));
}

int PrefixOf(const sockaddr* netmask) {
  int bits = 0;
  const auto count = [&bits](const auto& mask) {
    for (const unsigned char byte : std::span(reinterpret_cast<const unsigned char*>(&mask), sizeof(mask))) {
      bits += std::popcount(byte);
    }
  };
  if (netmask->sa_family == AF_INET) count(reinterpret_cast<const sockaddr_in*>(netmask)->sin_addr);
  if (netmask->sa_family == AF_INET6) count(reinterpret_cast<const sockaddr_in6*>(netmask)->sin6_addr);
  return bits;
}

}  // namespace

absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus("getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    ASSIGN_OR_RETURN(std::string address, AddressText(entry->ifa_addr));
    found.push_back({entry->ifa_name, std::move(address), PrefixOf(entry->ifa_netmask)});
  }
  return found;
}

absl::StatusOr<std::string> ChooseAddress(std::string_view choice, const std::vector<InterfaceAddress>& interfaces) {
  const auto subnet = ParseSubnet(choice);
  const InterfaceAddress* best = nullptr;
  int best_rank = 0;
  for (const InterfaceAddress& candidate : interfaces) {
    const auto bytes = ParseAddress(candidate.address);
    if (!bytes || !(candidate.interface == choice || (subnet && Contains(*subnet, *bytes)))) continue;
    if (const int rank = Rank(*bytes); best == nullptr || rank < best_rank) {
      best = &candidate;
      best_rank = rank;
    }
  }
  if (best != nullptr) return best->address;
  const auto describe = [](std::string* out, const InterfaceAddress& entry) {
    absl::StrAppend(out, entry.interface, " ", entry.address, "/", entry.prefix);
  };
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ToAbsl(choice), "\" is no interface, subnet or address of this machine, which has ",
                   interfaces.empty() ? "none" : absl::StrJoin(interfaces, ", ", describe)));
}

absl::StatusOr<std::string> FindAddress(std::string_view choice) {
  ASSIGN_OR_RETURN(const std::vector<InterfaceAddress> interfaces, ListInterfaces());
  return ChooseAddress(choice, interfaces);
}

absl::StatusOr<std::string> LocalAddressOf(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return ErrnoStatus("getsockname");
  return TcpAddressText(storage);
}

absl::StatusOr<std::string> PeerAddressOf(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return ErrnoStatus("getpeername");
  return TcpAddressText(storage);
}

}  // namespace gyre
