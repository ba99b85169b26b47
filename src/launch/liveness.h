// Liveness: whether another process is still there, by what is heard of it. Counts silence only while this process pays
// attention: one that was itself held up hears nobody. Pure; not thread-safe.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace gyre::launch {

inline constexpr Duration kBeat = std::chrono::milliseconds(250);  // between two signs of life

class Liveness {
 public:
  Liveness(Duration patience, TimePoint now) : patience_(patience), looked_(now), heard_(now) {}

  void OnHeard(TimePoint now) {
    heard_ = now;
    silence_ = {};
  }

  // To be called every kBeat at least, after what has arrived was taken. True: it has been silent for too long.
  bool Expired(TimePoint now) {
    silence_ += std::min<Duration>(now - looked_, 2 * kBeat);
    looked_ = now;
    return silence_ > patience_;
  }

  TimePoint heard() const { return heard_; }  // when the last sign of life arrived

 private:
  const Duration patience_;
  TimePoint looked_;
  TimePoint heard_;
  Duration silence_{};
};

}  // namespace gyre::launch
