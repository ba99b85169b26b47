// The identities of the peers of these tests, and their secret.
#pragma once

#include <string>

#include "net/handshake.h"

namespace gyre {

inline const std::string kTestSecret(32, 's');

inline HandshakeIdentity TestRank(int rank, uint64_t epoch = 1) {
  return {"job", epoch, rank, Role::kRank};
}

}  // namespace gyre
