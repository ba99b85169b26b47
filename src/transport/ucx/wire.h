// What libgyre and libgyre_ucx, the module that links UCX, say to each other: messages between ranks, and nothing of
// what is in them. The module is loaded only where UCX is asked for (loader.cc), so that libgyre runs where no UCX is:
// docs/decisions/ucx_transport.md.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/bytes.h"

namespace gyre::ucx {

inline constexpr size_t kHeaderBytes = 40;
using Header = std::array<std::byte, kHeaderBytes>;

// A message to be sent. It stays where it is until Events::on_sent gives it back.
struct Packet {
  Header header{};
  std::unique_ptr<std::byte[]> data;
  size_t capacity = 0;
  size_t size = 0;
};

// The bytes of a message that has come; they stay where they are until it is destroyed, which must be before the wire
// is, and like a call of the wire's.
class Content {
 public:
  virtual ~Content() = default;
  virtual Bytes bytes() const = 0;
};

// Called from within Progress, Send and the wire's destructor; they must not call the wire.
struct Events {
  // Whether a message with this header, of so many bytes, is to be taken: no memory is spent on it before.
  std::function<bool(const Header& header, size_t bytes)> accept;
  // Once for each message that was accepted; those without data in the order in which they were sent. No content: it
  // was lost on its way. Not at all where the wire ends before. A content with bytes must outlive the call.
  std::function<void(const Header& header, std::unique_ptr<Content> content)> on_message;
  // UCX reads it no more. It need not have arrived.
  std::function<void(std::unique_ptr<Packet> packet)> on_sent;
  // The connection with the peer has failed for good.
  std::function<void(int peer, const std::string& why)> on_failure;
};

// One thread at a time; none of the calls blocks, but for the destructor.
class Wire {
 public:
  // Ends all connections at once, and what is under way; a second at most. What has not ended by then is never freed.
  virtual ~Wire() = default;

  // For Connect on other ranks: bytes.
  virtual const std::string& address() const = 0;

  // The first messages take the connection along. kUnavailable: UCX knows no way there; its words.
  virtual absl::Status Connect(int peer, std::string_view address) = 0;

  // REQUIRES: Connect succeeded for the peer.
  virtual void Send(int peer, std::unique_ptr<Packet> packet) = 0;

  // Goes on with what is under way. False: there was nothing to be done.
  virtual bool Progress() = 0;

  // Readable when there is something to be done, if Arm returned true before; false: there is already.
  virtual int descriptor() const = 0;
  virtual bool Arm() = 0;
};

// The one function that the module exports, as "gyre_ucx_module".
struct Module {
  const char* version;  // of Gyre: must be the caller's

  // kUnavailable: UCX does not start; its words.
  absl::StatusOr<std::unique_ptr<Wire>> (*open)(Events events);
};
using GetModule = const Module* (*)();

}  // namespace gyre::ucx
