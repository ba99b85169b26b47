// What time it is, for all of the launcher.
#pragma once

#include "base/clock.h"

namespace gyre::launch {

inline TimePoint Now() {  // monotonic
  return std::chrono::steady_clock::now();
}

}  // namespace gyre::launch
