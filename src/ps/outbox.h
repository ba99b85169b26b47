// Outbox: a worker's pushes of one partition that its server may still need: until they are acknowledged, and after
// that until they are in the server's snapshot, so that a server that comes back from an older one gets them again. It
// knows which are under way: sent, and not acknowledged. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "ps/floats.h"

namespace gyre::ps {

class Outbox {
 public:
  struct Push {
    uint64_t from = 0;  // Message::from
    uint64_t sequence = 0;
    float rate = 0;       // the learning rate of the step
    Floats gradient{};    // or a payload
    uint32_t packed = 0;  // Message::packed
  };

  // The push of step `sequence`, later than all before.
  void Add(uint64_t sequence, float rate, Floats gradient, uint32_t packed);

  // What is awaited next, as an acknowledgement says. True if that is news.
  bool Acknowledge(uint64_t next);

  // Another process serves, which has come to `next`: perhaps less than was acknowledged.
  void Restart(uint64_t next) { acknowledged_ = sent_ = next; }

  // The first push that is neither acknowledged nor under way, or null.
  const Push* NextToSend() const;
  // That one was sent.
  void Sent(const Push& push) { sent_ = push.sequence + 1; }
  // What was sent may be lost: nothing is under way.
  void SendAgain() { sent_ = acknowledged_; }
  size_t BytesUnderWay() const;

  // All before is in the snapshot and not needed any more.
  void Release(uint64_t durable);

  // Keeps at most `most` of those that are acknowledged, of so many bytes.
  void Trim(size_t most, size_t bytes = SIZE_MAX);

  uint64_t acknowledged() const { return acknowledged_; }  // what is awaited next

  // What lies before it will not come any more.
  uint64_t Oldest() const { return pushes_.empty() ? from_ : pushes_.front().from; }

  bool IsPending(const Push& push) const { return push.sequence >= acknowledged_; }  // not acknowledged
  const std::deque<Push>& pushes() const { return pushes_; }                         // in order

 private:
  uint64_t acknowledged_ = 0;
  uint64_t sent_ = 0;  // all before are under way or acknowledged
  uint64_t from_ = 0;  // of the next push
  std::deque<Push> pushes_;
};

}  // namespace gyre::ps
