// HandshakePump: carries one side of a handshake over a socket without ever blocking.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "net/handshake.h"

namespace gyre {

// Not thread-safe.
class HandshakePump {
 public:
  enum class Need { kRead, kWrite, kNothing };

  // `output`: what the handshake has to say already. `handshake` must outlive the pump.
  HandshakePump(Handshake& handshake, std::string output) : handshake_(handshake), output_(std::move(output)) {}

  // Reads and answers until it is over (kNothing: the peer is authenticated) or `fd`, a stream socket, must be waited
  // for. Reads no further than the message that is due. Errors are the handshake's, and kUnavailable where the other
  // side closed the connection before it was over.
  absl::StatusOr<Need> Advance(int fd);

 private:
  absl::StatusOr<bool> Write(int fd);
  absl::StatusOr<bool> Read(int fd);

  Handshake& handshake_;
  std::string output_;
  std::array<std::byte, kMaxHandshakeMessageBytes> input_{};
  size_t filled_ = 0;
};

}  // namespace gyre
