#include "transport/shm/heartbeat_judge.h"

#include <algorithm>

namespace gyre::shm {

HeartbeatJudge::HeartbeatJudge(int peers, Duration interval)
    : interval_(interval), peers_(static_cast<size_t>(peers)) {}

void HeartbeatJudge::Tick(TimePoint now) {
  if (last_tick_ != TimePoint{}) elapsed_ = std::min<Duration>(now - last_tick_, 2 * interval_);
  last_tick_ = now;
}

Duration HeartbeatJudge::SilenceOf(int peer, uint64_t beat) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (beat != p.beat) {
    p = {.beat = beat};
  } else if (beat != 0) {
    p.silent += elapsed_;
  }
  return p.silent;
}

}  // namespace gyre::shm
