#include "launch/store_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "launch/hosts.h"

namespace gyre::launch {

namespace {

constexpr char kTry[] = "; try: --interface NAME or SUBNET of the network between the hosts";

absl::StatusOr<std::vector<std::string>> Resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the host does not know its own name ", host, " (", gai_strerror(error), ")", kTry));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text);
    }
  }
  return addresses;
}

}  // namespace

absl::StatusOr<std::string> ChooseStoreAddress(const std::string& host, const std::vector<std::string>& resolved,
                                               const std::vector<InterfaceAddress>& own) {
  for (const std::string& address : resolved) {
    if (std::ranges::find(own, address, &InterfaceAddress::address) == own.end() || IsLoopbackName(address)) continue;
    return address;
  }
  const auto describe = [](std::string* out, const InterfaceAddress& entry) {
    absl::StrAppend(out, entry.interface, " ", entry.address);
  };
  return absl::FailedPreconditionError(
      absl::StrCat("none of the addresses of ", host, " (", absl::StrJoin(resolved, ", "),
                   ") is one that the host has and others reach; it has ", absl::StrJoin(own, ", ", describe), kTry));
}

absl::StatusOr<std::string> FindStoreAddress(const std::string& host, const std::string& interface, bool loopback) {
  if (!interface.empty()) {
    absl::StatusOr<std::string> found = FindAddress(interface);
    if (found.ok()) return found;
    return absl::FailedPreconditionError(
        absl::StrCat(found.status().message(), "; try: --interface with one of these"));
  }
  if (loopback) return std::string("127.0.0.1");
  const std::string name(WithoutUser(host));
  ASSIGN_OR_RETURN(const std::vector<std::string> resolved, Resolve(name));
  ASSIGN_OR_RETURN(const std::vector<InterfaceAddress> own, ListInterfaces());
  return ChooseStoreAddress(name, resolved, own);
}

}  // namespace gyre::launch
