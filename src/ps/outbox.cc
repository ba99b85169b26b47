#include "ps/outbox.h"

#include <algorithm>
#include <utility>

namespace gyre::ps {

void Outbox::Add(uint64_t sequence, float rate, Floats gradient, uint32_t packed) {
  pushes_.push_back({from_, sequence, rate, std::move(gradient), packed});
  from_ = sequence + 1;
}

bool Outbox::Acknowledge(uint64_t next) {
  if (next <= acknowledged_) return false;
  acknowledged_ = next;
  sent_ = std::max(sent_, next);
  return true;
}

const Outbox::Push* Outbox::NextToSend() const {
  const auto next = std::ranges::find_if(pushes_, [this](const Push& push) { return push.sequence >= sent_; });
  return next == pushes_.end() ? nullptr : &*next;
}

size_t Outbox::BytesUnderWay() const {
  size_t bytes = 0;
  for (const Push& push : pushes_) {
    if (IsPending(push) && push.sequence < sent_) bytes += push.gradient.bytes().size();
  }
  return bytes;
}

void Outbox::Release(uint64_t durable) {
  while (!pushes_.empty() && pushes_.front().sequence < durable) pushes_.pop_front();
}

void Outbox::Trim(size_t most, size_t bytes) {
  size_t acknowledged = 0, held = 0;
  for (const Push& push : pushes_) {
    if (IsPending(push)) break;
    ++acknowledged;
    held += push.gradient.bytes().size();
  }
  for (; acknowledged > 0 && (acknowledged > most || held > bytes); --acknowledged) {
    held -= pushes_.front().gradient.bytes().size();
    pushes_.pop_front();
  }
}

}  // namespace gyre::ps
