// Line: one channel with one peer, both ways: what was sent and how much of that the peer has room for, what has come
// and in which order it is to be read. Pure: it neither sends nor waits.
//
// Credits: each message is charged its bytes and a little for itself. A sender is never ahead of its reader by more
// than kWindow of charge, so that no more than that is ever held for a reader that is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/clock.h"
#include "net/bytes.h"
#include "transport/ucx/wire.h"

namespace gyre::ucx {

inline constexpr uint64_t kWindow = 2 << 20;
inline constexpr size_t kMostBytes = 256 << 10;  // of one message
inline constexpr uint64_t kOverhead = 256;       // charged for a message, beside its bytes

class Line {
 public:
  Line(uint64_t channel, int peer) : channel_(channel), peer_(peer) {}

  uint64_t channel() const { return channel_; }
  int peer() const { return peer_; }

  // --- To the peer ---

  // How many bytes the next message may have, of `wanted`; 0: none now.
  size_t Room(size_t wanted) const;

  // Counts a message of so many bytes; returns its number.
  uint64_t CountSent(size_t bytes);
  uint64_t sent() const { return sent_; }

  // The peer has read so much in all, or more, if it said so before. False: it cannot have.
  bool Grant(uint64_t charge);

  // --- From the peer ---

  // Whether a message with this number and so many bytes may come now; it is counted if so.
  bool Accept(uint64_t number, size_t bytes);

  void Take(uint64_t number, std::unique_ptr<Content> content);

  // The next bytes to be read; empty: nothing is there.
  Bytes Front() const;

  // They were read. Returns what the peer is to be granted, if it is worth a message.
  std::optional<uint64_t> Consume(size_t bytes);

  // The peer sends no more than so many messages.
  void TakeEnd(uint64_t messages) { end_ = messages; }
  bool end_known() const { return end_.has_value(); }
  bool at_end() const { return end_ && next_ >= *end_; }
  bool whole() const { return !end_ || taken_ >= *end_; }  // nothing is missing, as far as is known
  bool heard() const { return accepted_ > 0 || end_; }

  // What has come and was not read is dropped.
  void Clear() { waiting_.clear(); }

 private:
  const uint64_t channel_;
  const int peer_;

  uint64_t sent_ = 0;  // messages
  uint64_t charged_ = 0, granted_ = 0;

  std::map<uint64_t, std::unique_ptr<Content>> waiting_;  // by number
  std::set<uint64_t> coming_;                             // numbers: accepted, not yet taken
  uint64_t taken_ = 0;                                    // messages
  uint64_t next_ = 0;                                     // number of the message to be read
  size_t read_ = 0;                                       // bytes of it
  uint64_t accepted_ = 0, consumed_ = 0, told_ = 0;       // charges
  std::optional<uint64_t> end_;
};

}  // namespace gyre::ucx
