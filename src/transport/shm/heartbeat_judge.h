// HeartbeatJudge: tells from observed heartbeats how long peers have been silent. Pure: time is given to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace gyre::shm {

// Silence is how long a peer's counter has stood still, in time of this rank's own attention: a tick that comes late
// counts for at most two intervals, so that a rank that was itself stopped, or starved, does not blame the others for
// the time it missed. Peers that have never beaten are not judged. Not thread-safe.
class HeartbeatJudge {
 public:
  HeartbeatJudge(int peers, Duration interval);

  // Call once a tick before observing the peers.
  void Tick(TimePoint now);

  // The peer's counter at this tick. Call once a tick.
  Duration SilenceOf(int peer, uint64_t beat);

 private:
  struct Peer {
    uint64_t beat = 0;
    Duration silent{};
  };

  const Duration interval_;
  std::vector<Peer> peers_;
  TimePoint last_tick_{};
  Duration elapsed_{};
};

}  // namespace gyre::shm
