// Link: one authenticated TCP connection between a worker and a server, which carries setups and messages both ways.
//
// A message is a frame (net/framing.h) without its floats, followed by these as they are: sent from where they lie,
// received where they will be kept. Between processes that can share memory, floats of a FloatArena are not sent: the
// other side reads them where they lie. They are lent, which keeps them from being used again, until the other side
// says that nobody holds them there any more. docs/wire_format.md has the layout.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "net/event_loop.h"
#include "net/framing.h"
#include "ps/floats.h"
#include "ps/process/float_arena.h"
#include "ps/wire.h"

namespace gyre::ps {

// All on the loop's thread; nothing blocks. Callbacks must not destroy the link: who owns it looks at status() after
// each RunOnce.
class Link {
 public:
  struct Events {
    std::function<void(std::string_view)> on_setup;
    std::function<void(const Message&)> on_message;  // its views last for the call; its keeper may be kept
    std::function<void()> on_bytes = [] {};          // of what may take long to be a message
  };

  // `fd`: connected, and past the handshake. The loop must outlive the link. `host`: the same at processes that may
  // share memory; empty: those of one network namespace.
  static absl::StatusOr<std::unique_ptr<Link>> Create(EventLoop& loop, UniqueFd fd, uint64_t epoch, std::string host,
                                                      Events events);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Once: floats of `arena` are lent from now on, if the other side can read them. The arena outlives the link. What
  // was lent when the link ends counts as given back, although the other side may still read it.
  void Offer(const FloatArena& arena);

  // Queue; Flush sends. What a message's keeper holds is sent from there.
  void SendSetup(std::string_view setup);
  void Send(const Message& message);
  void Flush();
  bool idle() const { return queue_.empty(); }
  bool lends() const { return lending_; }    // the other side reads floats of the arena where they are
  bool on_host() const { return on_host_; }  // nothing goes over a link between hosts

  // The other side has said nothing for half the time-out or longer, but its process is one of this host, which nothing
  // holds up: it waits for a processor. Not believed for ever.
  bool IsStarved(TimePoint now, Duration timeout) const;

  // Not OK: the connection has ended, or brought what is no message.
  const absl::Status& status() const { return status_; }

 private:
  struct Outgoing {
    std::string head;  // a frame, and floats that are not kept elsewhere
    Bytes floats;
    Floats keeper;
  };
  struct Arriving {
    std::string head;  // a message without its floats
    Floats floats;
    size_t filled = 0;  // bytes
    bool lent = false;  // by the other side
  };

  Link(EventLoop& loop, UniqueFd fd, bool on_host, uint64_t epoch, std::string host, Events events);
  void OnReady(uint32_t events);
  void Read();
  void Take(Bytes bytes);
  void TakeFrame(Frame frame);
  void TakeMessage(Frame frame);
  void TakeOffer(std::string_view payload);
  void TakeLent(const Frame& frame);
  void TakeReturned(std::string_view payload);
  bool Lend(const Message& message);
  std::deque<Outgoing>::iterator PlaceOfAck();
  void GiveBack();
  void Finish();
  std::span<iovec> Gather();
  void Sent(size_t bytes);
  void Fail(absl::Status status);

  EventLoop& loop_;
  UniqueFd fd_;
  const bool on_host_;
  const uint64_t epoch_;
  const std::string host_;
  const Events events_;
  absl::Status status_;
  TimePoint heard_;
  FrameDecoder decoder_;
  std::vector<std::byte> staging_;
  Arriving arriving_;
  Floats spare_;  // floats that nobody kept
  bool receiving_floats_ = false;
  std::deque<Outgoing> queue_;
  size_t sent_ = 0;  // bytes of the first
  std::vector<iovec> pieces_;
  bool waits_to_send_ = false;
  const FloatArena* arena_ = nullptr;  // ours
  bool lending_ = false;               // the other side can read it
  uint64_t lent_ = 0;                  // how often
  std::map<uint64_t, Floats> loans_;   // by number: what the other side may read
  std::shared_ptr<const MappedArena> theirs_;
  std::shared_ptr<std::vector<uint64_t>> returned_;  // loans of theirs that nobody holds any more
};

}  // namespace gyre::ps
