// HeartbeatJudge: decides from observed heartbeats which peers are frozen. Pure: time is given to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace gyre::shm {

// A peer is frozen when its counter has stood still for `timeout` of this rank's own attention: a tick that comes late
// counts for at most two intervals, so that a rank that was itself stopped, or starved, does not blame the others for
// the time it missed. Peers that have never beaten are not judged. Not thread-safe.
class HeartbeatJudge {
 public:
  // timeout 0: never.
  HeartbeatJudge(int peers, Duration interval, Duration timeout);

  // Call once a tick before observing the peers.
  void Tick(TimePoint now);

  // The peer's counter at this tick. True once, at the tick that finds it frozen.
  bool IsFrozen(int peer, uint64_t beat);

 private:
  struct Peer {
    uint64_t beat = 0;
    Duration silent{};
    bool frozen = false;
  };

  const Duration interval_;
  const Duration timeout_;
  std::vector<Peer> peers_;
  TimePoint last_tick_{};
  Duration elapsed_{};
};

}  // namespace gyre::shm
