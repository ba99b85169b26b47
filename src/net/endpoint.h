// Endpoint: where a TCP listener is to be found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gyre {

struct Endpoint {
  std::string host;   // a name, an IPv4 or an IPv6 address (without brackets); never empty
  uint16_t port = 0;  // 0 only where a listener may choose

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// "host:port", "1.2.3.4:port", "[v6]:port". kInvalidArgument quotes the text and says what is accepted.
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);

// The inverse: an address with colons is put in brackets.
std::string ToString(const Endpoint& endpoint);

// Whether the host is an IPv4 or IPv6 address, the latter perhaps with a zone ("fe80::1%eth0"), and not a name.
bool IsAddress(const Endpoint& endpoint);

// Whether the host is "localhost" or an address of this machine's loopback, by its text alone: nothing is resolved.
bool IsLoopback(const Endpoint& endpoint);

}  // namespace gyre
