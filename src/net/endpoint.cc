#include "net/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre {

namespace {

absl::Status Unusable(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ToAbsl(text), "\" is no endpoint (host:port or [v6]:port): ", ToAbsl(why)));
}

}  // namespace

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Unusable(text, "the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return Unusable(text, "an IPv6 address needs brackets");
  }
  if (host.empty()) return Unusable(text, "the host is missing");
  // A NUL above all: to the system a text ends there.
  const bool unprintable = std::ranges::any_of(host, [](unsigned char c) { return c <= ' ' || c == 0x7f; });
  if (host.size() > 255 || unprintable || host.find_first_of("[]/") != std::string_view::npos) {
    return Unusable(text, "the host is not a name or an address");
  }
  uint32_t port = 0;
  if (port_text.empty() || port_text.find_first_not_of("0123456789") != std::string_view::npos ||
      !absl::SimpleAtoi(ToAbsl(port_text), &port) || port > 65535) {
    return Unusable(text, "the port is not a number from 0 to 65535");
  }
  return Endpoint{std::string(host), static_cast<uint16_t>(port)};
}

std::string ToString(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", endpoint.host, "]:", endpoint.port) : absl::StrCat(endpoint.host, ":", endpoint.port);
}

bool IsAddress(const Endpoint& endpoint) {
  in_addr v4{};
  if (inet_pton(AF_INET, endpoint.host.c_str(), &v4) == 1) return true;
  in6_addr v6{};
  return inet_pton(AF_INET6, endpoint.host.substr(0, endpoint.host.find('%')).c_str(), &v6) == 1;
}

bool IsLoopback(const Endpoint& endpoint) {
  if (endpoint.host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, endpoint.host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, endpoint.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace gyre
