#include "transport/shm/heartbeat_judge.h"

#include <algorithm>

namespace gyre::shm {

HeartbeatJudge::HeartbeatJudge(int peers, Duration interval, Duration timeout)
    : interval_(interval), timeout_(timeout), peers_(static_cast<size_t>(peers)) {}

void HeartbeatJudge::Tick(TimePoint now) {
  if (last_tick_ != TimePoint{}) elapsed_ = std::min<Duration>(now - last_tick_, 2 * interval_);
  last_tick_ = now;
}

bool HeartbeatJudge::IsFrozen(int peer, uint64_t beat) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (beat != p.beat) {
    p.beat = beat;
    p.silent = Duration{};
    return false;
  }
  if (beat == 0 || timeout_ == Duration{} || p.frozen) return false;
  p.silent += elapsed_;
  p.frozen = p.silent >= timeout_;
  return p.frozen;
}

}  // namespace gyre::shm
