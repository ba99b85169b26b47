// MessageLink: messages of any size with one other rank of a communicator, over its Send and Receive, without waiting.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "gyre/communicator.h"

namespace gyre::internal {

// Not thread-safe. Must not be destroyed before idle(), for the communicator writes into it.
class MessageLink {
 public:
  MessageLink(Communicator& communicator, int peer) : communicator_(communicator), peer_(peer) {}

  // Awaits the peer's next message, however long that takes.
  void Listen();

  void Send(std::string bytes);

  // The message that Listen awaits, once it is there, or why it does not come. A peer that has left in order is an
  // error too, but does not break the communicator. Also lets go of what was sent.
  std::optional<absl::StatusOr<std::string>> Poll();

  // Every message was sent, or could not be.
  bool sent() const { return outgoing_.empty(); }

  // Nothing is under way.
  bool idle() const { return !listening_ && sent(); }

 private:
  // The first part of every message: its length and its first bytes. The rest, if any, is a second one.
  static constexpr size_t kFrame = 256, kInline = kFrame - sizeof(uint32_t);
  using Frame = std::array<uint8_t, kFrame>;

  struct Outgoing {
    Frame frame;
    std::string bytes;
    Work first, second;
  };

  Work StartSend(const TensorView& bytes);
  Work StartReceive(const TensorView& bytes);

  Communicator& communicator_;
  const int peer_;
  bool listening_ = false;
  bool in_rest_ = false;
  Frame frame_{};
  std::string bytes_;
  Work receive_;
  std::deque<Outgoing> outgoing_;
};

}  // namespace gyre::internal
