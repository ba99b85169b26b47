// What strangers send to a hub, and what ranks that lie tell it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "net/handshake.h"
#include "support/mutator.h"
#include "transport/tcp/control_frames.h"

namespace gyre::tcp {

// What a client and a hub said to each other when the client was let in, and what it sent next.
struct Recording {
  std::string hello, proof, verdict;
  std::string purpose;  // of a control connection
  std::string frames;   // that could follow it
};

// Both sides' HMACs of another handshake of the same job: made here, without a socket.
Recording RecordInProcess(const HandshakeIdentity& client, const HandshakeIdentity& server, const std::string& secret);

// A stranger's next message: random, or recorded, whole or mutated.
std::string StrangersMessage(support::Mutator& random, const Recording& recording);

// What an authenticated peer sends: from its purpose on.
struct Lies {
  std::string bytes;
  int64_t frames = 0;  // or pieces of garbage
};

struct LieOptions {
  uint64_t epoch = 1;
  int teller = 0;
  int hearer = 0;
  int liars = 1;                                 // ranks 0 to liars - 1 may be accused
  std::function<bool(int rank)> may_be_accused;  // no others may
};
// From the purpose on, as the side that connected.
Lies TellLies(support::Mutator& random, const LieOptions& options);
// Control frames alone, the first numbered `sequence`.
Lies TellControlLies(support::Mutator& random, const LieOptions& options, uint32_t sequence);

}  // namespace gyre::tcp
