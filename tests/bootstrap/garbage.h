// Garbage: what a stranger, a broken program or an attacker without the secret may send to a listener.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/handshake.h"
#include "support/mutator.h"

namespace gyre {

// Makes messages from a seed. Not thread-safe.
class GarbageMaker {
 public:
  // `self` and `secret` are real: some messages are recordings of real ones, or real but for a flaw.
  GarbageMaker(uint64_t seed, HandshakeIdentity self, std::string secret);

  // Random bytes, a recorded handshake's or a frame's message, mutated or whole (then a replay).
  std::string Message();

  // For a peer that has proved itself: a frame with a right checksum around a random or mutated request.
  std::string WellFormedFrame();

  // 0 <= result < n
  uint64_t Below(uint64_t n) { return random_.Below(n); }

 private:
  std::string RandomRequest();
  void Record();

  support::Mutator random_;
  const HandshakeIdentity self_;
  const std::string secret_;
  std::vector<std::string> recorded_;
};

}  // namespace gyre
