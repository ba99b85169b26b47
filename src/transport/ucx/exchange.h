// Exchange: what a rank's streams over UCX share: the wire, the lines over it, and a thread that goes on with what is
// under way when nobody else does.
//
// Whoever reads or writes drives the wire, under one lock. The thread sleeps as long as somebody does so (it looks
// every half a millisecond), then until the wire's descriptor wakes it: a message that was written must arrive also if
// its writer computes from then on, and rendezvous take both sides' part.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fd.h"
#include "transport/streams.h"
#include "transport/ucx/line.h"
#include "transport/ucx/message.h"
#include "transport/ucx/wire.h"

namespace gyre::ucx {

// A rank of another host.
struct Peer {
  std::string wire_address;  // Wire::address of its wire
  std::string name;          // for messages: "rank 3 on host b"
  Token sends{};             // on what comes from it
  Token receives{};          // on what goes to it
};

// What wakes a thread that sleeps for a stream. Guarded by the exchange's lock, but for the descriptor.
struct Bell {
  UniqueFd fd;  // none: there was none to be had; the sleeper looks at its own times
  bool armed = false;
  bool rung = false;
};

// Thread-safe, but for Start.
class Exchange {
 public:
  using Open = std::function<absl::StatusOr<std::unique_ptr<Wire>>(Events)>;

  // `self`: this rank. Errors are those of `open`.
  static absl::StatusOr<std::shared_ptr<Exchange>> Create(int self, const Open& open);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Of the wire, for the peers.
  const std::string& wire_address() const { return wire_address_; }

  // `end_of`: how a peer has ended, by name, as the rank's control connections know it; OK while it is there. Once,
  // before all that follows. kResourceExhausted: no thread or descriptor.
  absl::Status Start(const std::map<int, Peer>& peers, std::function<absl::Status(int)> end_of);

  // --- For streams; a line is used by one thread at a time ---

  // The line of a channel with a peer, until Leave. Null: that rank is no peer.
  struct Slot;  // a line and who uses it
  Slot* Enter(uint64_t channel, int peer, Bell* bell);
  void Leave(std::span<Slot* const> slots);

  // As those of Streams.
  absl::StatusOr<size_t> Write(Slot& slot, std::span<const Bytes> pieces);
  absl::StatusOr<size_t> Read(Slot& slot, MutableBytes into);
  void AddWaits(Slot& slot, bool to_read, bool to_write, std::vector<pollfd>& waits);

  // Who sleeps looks again: a peer may have ended.
  void Wake();

  // Says goodbye to the peers, waits up to half a second for them to have all that was sent, and ends all connections.
  // For those that have said goodbye themselves it waits only as long as its own answer may be on its way.
  // Idempotent.
  void Close();

 private:
  // A peer and how the connection with it fares.
  struct Contact {
    Peer peer;
    bool connected = false;
    std::optional<std::string> failure;  // of the connection
    int64_t coming = 0;                  // messages that were accepted and are not there yet
    bool leaves = false;                 // it has said goodbye, and has no answer
    bool gone = false;                   // it has said goodbye, and may hear nothing any more
    bool let_go = false;                 // it has answered ours
  };

  explicit Exchange(int self);
  Events WireEvents();

  // All with the lock held.
  bool Accept(const Header& header, size_t bytes);
  bool AcceptData(const Message& message, size_t bytes);
  void Arrived(const Header& header, std::unique_ptr<Content> content);
  void Interpret(Contact& contact, const Message& message, std::unique_ptr<Content> content);
  bool HasAllFrom(int peer) const;
  void Failed(int peer, const std::string& why);
  Slot* Find(uint64_t channel, int peer);
  Slot& FindOrMake(uint64_t channel, int peer);
  void DropOldest();
  bool Progress();
  bool Reach(int peer, Contact& contact);
  void Tell(int peer, Kind kind, uint64_t channel, uint64_t number);
  void TellOwed();
  void AnswerGoodbye(int peer);
  void Touch(Slot& slot);
  absl::Status CheckOpen() const;
  absl::StatusOr<size_t> EndOf(const Slot& slot, bool reading, std::optional<TimePoint>& since) const;
  absl::StatusOr<size_t> Ended(const Slot& slot, std::optional<TimePoint>& since, const std::string& how) const;
  absl::StatusOr<std::unique_ptr<Packet>> MakeRoom(Slot& slot, size_t wanted);
  static void Ring(Slot& slot);

  // Without it.
  void Attend();
  void Rest(int milliseconds) const;
  void Nudge() const;

  void SayGoodbye(std::unique_lock<std::mutex>& lock);

  const int self_;
  std::string wire_address_;
  int wire_descriptor_ = -1;
  std::function<absl::Status(int)> end_of_;

  std::mutex mutex_;  // guards all that follows, but for what says otherwise
  std::unique_ptr<Wire> wire_;
  std::map<int, Contact> contacts_;                                  // by rank
  std::map<std::pair<uint64_t, int>, std::unique_ptr<Slot>> slots_;  // by channel and peer
  size_t early_ = 0;                                                 // of them, those that nobody has entered
  uint64_t next_order_ = 0;
  std::vector<std::unique_ptr<Packet>> packets_;  // to be used again
  struct Owed {
    int peer;
    Kind kind;
    uint64_t channel;
  };
  std::vector<Owed> owed_;  // messages that what has come asks for
  bool closed_ = false;

  UniqueFd nudge_;                    // wakes the thread; not guarded
  std::atomic<uint64_t> touches_{0};  // by those who drive the wire; not guarded
  std::atomic<bool> resting_{false};  // the thread, until it is woken; not guarded
  std::atomic<bool> stopping_{false};
  std::mutex close_mutex_;
  std::thread thread_;  // guarded by close_mutex_
};

}  // namespace gyre::ucx
