// PeerAddress: where a peer's hub is, and what to call it.
#pragma once

#include <string>

#include "net/endpoint.h"

namespace gyre::tcp {

struct PeerAddress {
  Endpoint endpoint;  // of an address, as the peer's Hub::endpoint tells it
  std::string name;   // for messages: "rank 3 on host b"
};

}  // namespace gyre::tcp
